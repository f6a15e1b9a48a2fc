"""Checked by mypy --strict in .ci/run, never executed: the lazy names keep their types."""

from typing import Literal

import cudaguard

handle: cudaguard.Guard = cudaguard.install("fix", enable=["LOCAL1"], children=True)
with cudaguard.guard("warn", context=0, children=True) as inner:
    mode: str = inner.mode
with handle:
    handle.uninstall()

rule = cudaguard.Rule("LOCAL1", ["torch"], "why", needs=["mylib"])
tables: list[dict[str, object]] = [
    {"set_env": "A", "value": "1"},
    {"clone_outputs": True, "target": "app.f"},
]
cudaguard.Rule("LOCAL2", {"torch"}, "why", dist=frozenset(("x",)), actions=tables, grade="opt-in")
action = {"load_local": "libx.so*"}
cudaguard.Rule("LOCAL2", ("torch",), "why", actions=(action, *rule.actions))
pattern: str = rule.actions[0]["load_local"]
grade: Literal["automatic", "opt-in", "report"] = rule.grade
cudaguard.add_rule(rule.replace(grade="report"))
rules: tuple[cudaguard.Rule, ...] = cudaguard.active_rules()

ready = cudaguard.normalize(object(), consumer="torch", stream=None)
faults: list[cudaguard.Finding] = cudaguard.validate(object())
try:
    cudaguard.normalize(ready)
except cudaguard.ArrayInterfaceError as error:
    words: tuple[str, str, str, str] = (error.field, error.value, error.rule, error.remedy)

check: cudaguard.ExtensionCheck = cudaguard.check_extension("ext.so", assume_imported=("torch",))
told: tuple[str, str, str] = (check.path, check.message, check.remedy)
lacking: tuple[tuple[str, str], ...] = check.missing_symbols

status: cudaguard.Status = cudaguard.status()
findings: tuple[cudaguard.Finding, ...] = status.findings
events: tuple[cudaguard.Event, ...] = status.events

# Each of these must be an error; an unused ignore is one as well (strict).
cudaguard.install(3)  # type: ignore[arg-type]
cudaguard.install("fxi")  # type: ignore[arg-type]
cudaguard.install(enabled=["CG001"])  # type: ignore[call-arg]
cudaguard.normalize(ready, consumer=4)  # type: ignore[arg-type]
cudaguard.nonsense()  # type: ignore[attr-defined]
cudaguard.install(enable="CG001")  # type: ignore[arg-type]
cudaguard.guard(disable="CG001")  # type: ignore[arg-type]
cudaguard.install(rules=rule)  # type: ignore[arg-type]
cudaguard.Rule("LOCAL1", "torch", "why")  # type: ignore[arg-type]
cudaguard.Rule("LOCAL1", ("torch",), "why", needs="mylib")  # type: ignore[arg-type]
cudaguard.Rule("LOCAL1", ("torch",), "why", grade="fix")  # type: ignore[arg-type]
cudaguard.Rule("LOCAL1", ("torch",), "why", actions=["load_local:x"])  # type: ignore[list-item]
cudaguard.Rule("LOCAL1", ("torch",), "why", actions={"load_local": "x"})  # type: ignore[arg-type]
rule.actions[0]["load_local"] = "y"  # type: ignore[index]
cudaguard.Finding("LOCAL1", "what", severity="warn")  # type: ignore[arg-type]
cudaguard.graph_safe(len, strategy="copy")  # type: ignore[arg-type]

safe = cudaguard.graph_safe(len, strategy="clone")
length: int = safe("abc")
meaning: "cudaguard.Finding | None" = cudaguard.explain("CG001")
