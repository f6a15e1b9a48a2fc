"""What cudaguard is to know of this package; imported by cudaguard, and by nobody else."""

from cudaguard import Rule

RULES = (
    Rule(
        id="FASTVISION1",
        title="fastvision 1.4 is built for torch 2.8",
        watch=("fastvision",),
        when={
            "dists": {"torch": ""},
            "unless": [
                {"fastvision": "==1.4.*", "torch": "==2.8.*"},
                {"fastvision": "==1.3.*", "torch": "==2.7.*"},
            ],
        },
        grade="report",
        why=(
            "fastvision is built for one release of torch, 1.4 for torch 2.8, and crashes with "
            "another one. Install the release of fastvision for your torch."
        ),
        links=("https://example.org/fastvision/issues/12",),
    ),
    Rule(
        id="FASTVISION2",
        title="fastvision keeps its codecs to itself",
        watch=("fastvision",),
        when={"platform": "linux"},
        actions=({"load_local": "libfastvision_codecs.so*"},),
        why=(
            "fastvision before 1.5 loads its codecs with RTLD_GLOBAL, and FFmpeg of other packages "
            "binds to them."
        ),
        fixed_in="fastvision 1.5",
    ),
)
