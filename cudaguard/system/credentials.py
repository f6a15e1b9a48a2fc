"""Takes credentials out of a text: by name, by place, and by their own form.

What a credential looks like is seldom known. Three things tell one: the name in front of it
(``DB_PASS=``, ``"api_key":``, ``--token``), the place where it stands (in a URL before the host,
after ``login ... password``), and a form that nobody gives to a name or a version: a prefix of a
provider, or letters and digits without any order. Every step takes linear time.
"""

from __future__ import annotations

import re

from cudaguard.system.random_words import looks_random

SECRET = "<secret>"  # noqa: S105  # what stands in its place

# --- names ----------------------------------------------------------------------------------

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# A name that ends like this, its parts put together, as in PGPASSWORD, api_key, clientSecret.
_ENDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "secrets", "token", "credential",
    "credentials", "sessionid", "sshpass",
    *(f"{whose}key" for whose in ("api", "access", "secret", "private", "account", "auth", "pass",
      "signing", "encryption", "master", "license", "shared", "ssh", "storage", "subscription",
      "service", "deploy", "client", "app", "hmac", "session", "admin")),
)  # fmt: skip
# A part that makes a name one of a credential, unless its last part says that it is not.
_SECRET_PARTS = {"authorization", "cookie", "pwd", "passwd", "password", "secret", "jwt", "token"}
_WEAK_PARTS = {
    "auth",
    "session",
    "pass",
    "pat",
    "cred",
    "creds",
    "sig",
    "signature",
    "sas",
    "otp",
    "psk",
    "dsn",
}
_OF_SOMETHING_ELSE = {
    "age", "cache", "count", "dir", "enabled", "endpoint", "expires", "expiry", "file", "files",
    "folder", "helper", "host", "id", "ids", "index", "length", "limit", "max", "method", "mode",
    "name", "names", "parallelism", "path", "policy", "port", "provider", "required", "scope",
    "server", "size", "sock", "socket", "store", "timeout", "ttl", "type", "types", "uri", "url",
    "version",
}  # fmt: skip
_PLAIN_KEYS = {"public", "sort", "primary", "foreign", "cache", "dict", "hash", "group", "registry",
               "partition", "index", "state", "config", "lookup", "map", "missing"}  # fmt: skip
_SURE, _WEAK, _NO = 2, 1, 0


def _rank(name: str) -> int:
    parts = _PARTS.findall(name)
    lower = [part.lower() for part in parts]
    while lower and lower[-1].isdigit():  # TOKEN_2
        lower.pop()
    if not lower:
        return _NO
    if "".join(lower).endswith(_ENDS):
        return _SURE
    if lower[-1] in _OF_SOMETHING_ELSE:
        return _NO
    if not _SECRET_PARTS.isdisjoint(lower) or "key" in lower[1:-1]:
        return _SURE
    if lower[-1] == "key" and name.isupper() and len(lower) > 1:
        return _NO if lower[-2] in _PLAIN_KEYS else _SURE
    return _NO if _WEAK_PARTS.isdisjoint(lower) else _WEAK


def is_secret_name(name: str) -> bool:
    """Return True if what has this name is a credential: a variable, an option, a key."""
    return _rank(name) > _NO


# --- values ---------------------------------------------------------------------------------

_EXEMPT = {"true", "false", "none", "null", "yes", "no", "on", "off", "str", "bytes", "not", "is",
           "set", "unset", "required", "missing", "optional", "or", "and"}  # fmt: skip
_NOT_A_VALUE = ("<", "${", "$(", "{", "[", "(", "*", "%(")


def _is_value(value: str, rank: int, *, is_prose: bool = False) -> bool:
    """Return True if a value can be a credential.

    Args:
        value: Without its quotes.
        rank: Of the name.
        is_prose: True if it can be a word of a sentence that goes on.
    """
    if value.lower() in _EXEMPT or value.startswith(_NOT_A_VALUE) or not _SIGN.search(value):
        return False
    if rank == _WEAK and (is_prose or "(" in value):
        return _MIXED.match(value) is not None
    if is_prose:
        return _SIGN_OF_A_SECRET.search(value) is not None
    return len(value) > 4 or not value.isdigit()  # max_token=512


_SIGN = re.compile(r"[^\W_]")
_SIGN_OF_A_SECRET = re.compile(r"[\d!#$%^&*@_]|[a-z][A-Z]")
_MIXED = re.compile(r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{8,}\Z")
_ASSIGNED = re.compile(
    r"(?P<around>[\"'`]?)(?<![\w.-])(?:--?|[+~]{1,2})?(?P<name>[A-Za-z_][\w.-]*"
    r"(?: key| token)?)(?P<closing>\\{0,4}[\"'])?\]?\s{0,4}(?P<sign>\??[=:]{1,3}>?=?)\s{0,4}"
)
_QUOTED = re.compile(r"(?P<quote>\\{0,4}[\"'])")
_BARE = re.compile(r"[^\s'\",;&]+")
# What may be a credential behind any name, unless that says what else it is.
_UNNAMED = re.compile(r"[\"']?([A-Za-z0-9][\w+=-]{15,400})(?![\w.+/=-])")
_OF_A_HASH = re.compile(
    r"sha|md5|hash|digest|commit|rev|build|id\Z|tag|symbol|file|name|path|kernel", re.IGNORECASE
)
_GOES_ON = re.compile(r"[ \t]+[^\s#]|[.:;?!)]")
_TO_THE_SPACE = re.compile(r"\S+")
_LONGEST = 1 << 14  # characters of a value
# A line of variables, as `env` and shells write it.
_BEGINNING = re.compile(r"(?:\A|\n)(?:export |set |declare -x )?\Z")
_HEADERS = {"authorization", "proxy-authorization", "cookie", "set-cookie"}
_OF_A_HEADER = re.compile(r"(?P<kept>\s*(?:[A-Za-z]+ )?)(?P<value>[^\r\n'\"]+)")


def _value_at(text: str, at: int, around: str = "", *, to_space: bool = False) -> tuple[int, int]:
    """Return where a value begins and ends, without its quotes.

    Args:
        text: The text.
        at: Where it begins, with its quotes.
        around: The quote that stands before the name: the whole is one quoted word.
        to_space: True for a line of variables, where only a space ends a value.
    """
    line_end = text.find("\n", at, at + _LONGEST)
    if line_end < 0:
        line_end = at + _LONGEST
    if around and text.startswith(around, at):
        return at, at
    opened = _QUOTED.match(text, at)
    if opened is not None:
        end = text.find(opened["quote"], opened.end(), line_end)
        while end > 0 and len(opened["quote"]) == 1 and text[end - 1] == "\\":
            end = text.find(opened["quote"], end + 1, line_end)
        if end >= 0:
            return opened.end(), end
        at = opened.end()
    elif around:
        end = text.find(around, at, line_end)
        if end >= 0:
            return at, end
    found = (_TO_THE_SPACE if to_space else _BARE).match(text, at)
    end = found.end() if found else at
    while end > at and text[end - 1] in ")]}":
        end -= 1
    return at, end


def _by_name(text: str) -> str:
    """Replace what stands behind the name of a credential."""
    parts: list[str] = []
    done = 0
    for match in _ASSIGNED.finditer(text):
        if match.start("name") < done:
            continue
        name = match["name"]
        rank = _rank(name)
        if not rank:
            value = _UNNAMED.match(text, match.end())
            if value and not _OF_A_HASH.search(name) and looks_random(value[1], is_value=True):
                parts += text[done : value.start(1)], SECRET
                done = value.end(1)
            continue
        if name.lower() in _HEADERS and match["sign"] == ":":
            header = _OF_A_HEADER.match(text, match.end())
            begin, end = header.span("value") if header else (0, 0)
        else:
            to_space = name.isupper() and _BEGINNING.search(
                text[max(0, match.start("name") - 12) : match.start("name")]
            )
            around = "" if match["closing"] else match["around"]
            begin, end = _value_at(text, match.end(), around, to_space=bool(to_space))
        is_prose = (
            match["sign"] == ":" and begin == match.end() and _GOES_ON.match(text, end) is not None
        )
        if _is_value(text[begin:end], rank, is_prose=is_prose):
            parts += text[done:begin], SECRET
            done = end
    return "".join((*parts, text[done:]))


# --- options --------------------------------------------------------------------------------

_OPTION = re.compile(r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*)[ \t=]{1,4}(?![-\s])")
_USERS = {"user", "auth", "proxy-user", "userpwd", "login", "u", "U", "a"}
_USER_AND_PASSWORD = re.compile(r"[^\s:/'\"]+:(?!//)[^\s'\"/:][^\s'\"/]*\Z")
# Programs whose -p, -a, -w is a password: with others it is a port, a plug-in, a folder.
_ASKS = re.compile(
    r"\b(?:sshpass|login|mysql\w{0,9}|maria\w{0,9}|mongo\w{0,9}|ldap\w{2,8}|redis-cli|svn|twine|"
    r"htpasswd|sqlcmd|\w{0,20}auth)\b[^\n|;&]{0,200}\Z"
)
_SHORT = {"p", "P", "a", "w", "t", "passin"}


def is_option_of_secret(option: str, value: str, before: str) -> bool:
    """Return True if the value of an option is a credential.

    Args:
        option: Its name, without dashes.
        value: Its value, without quotes.
        before: What stands before it on the line.
    """
    if option in _SHORT:
        return looks_random(value) or (
            _ASKS.search(before) is not None and not value.isdigit() and value[:1] not in "./"
        )
    if option in _USERS and _USER_AND_PASSWORD.match(value):
        return not value.replace(":", "").isdigit()  # of docker run: user and group
    rank = _rank(option) if len(option) > 1 else _NO
    return rank > _NO and _is_value(value, rank, is_prose=rank == _WEAK)


# As lists of variables have it: a name, and beside it a value.
_PAIR = re.compile(
    r"\b(?:name|key|Name|Key)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<name>[\w.-]{3,80})[\"']?,?\s{0,40}"
    r"[\"']?(?:value|Value)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<value>[^\s'\"<>{}]{1,4000})"
)


def _pair(match: re.Match[str]) -> str:
    if is_secret_name(match["name"]) and _is_value(match["value"], _SURE):
        return f"{match.string[match.start() : match.start('value')]}{SECRET}"
    return match[0]


def _by_option(text: str) -> str:
    """Replace the values of options that stand after a space."""
    parts: list[str] = []
    done = 0
    for match in _OPTION.finditer(text):
        if match.start() < done:
            continue
        begin, end = _value_at(text, match.end())
        before = text[max(0, match.start() - 300) : match.start()]
        if is_option_of_secret(match["name"], text[begin:end], before):
            parts += text[done:begin], SECRET
            done = end
    return "".join((*parts, text[done:]))


# --- forms ----------------------------------------------------------------------------------

_DIGEST = re.compile(r"(?:sha\d{1,3}|md5)[-:=]\Z", re.IGNORECASE)
_CANDIDATE = re.compile(r"(?<![\w/+.~-])[A-Za-z0-9_][\w.+/~-]{15,}={0,2}")
_IN_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>[^\s'\"<>]+)"
)
# What providers put in front: also of what is too short to look like anything.
_PREFIXED = re.compile(
    r"\b(?:A[KS]IA[A-Z0-9]{12,}|(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|[srp]k_(?:live|test)_|xapp-|"
    r"xox[a-z]-|pypi-A|npm_|AIza|ya29\.|GOCSPX-|nvapi-|dapi|hvs\.|SG\.|r8_)"
    r"(?=[\w.-]{0,24}?(?:\d|[a-z][A-Z]))[\w.-]{8,})"
)
_JWT = re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){0,4}={0,2}")
_PEM = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)
# As in .netrc, .pgpass, and behind the name of the way in which somebody logs in.
_PLACES = (
    re.compile(r"(\b(?:login|account|user)\s{1,9}\S{1,200}\s{1,9}password\s{1,9})(\S+)"),
    re.compile(r"(^[^:\s]+:(?:\d{1,5}|\*):[^:\s]+:[^:\s]+:)(\S+)$", re.MULTILINE),
    re.compile(
        r"(\b(?:bearer|basic|token)\s{1,9})(?=[A-Za-z+/=.~-]*\d)([\w.~+/=-]{8,})", re.IGNORECASE
    ),
    re.compile(
        r"(\b(?:login|token|key|secret|password|auth|credentials?)(?: is)? )"
        r"(?=[a-z]*\d)([\w+/=-]{20,})",
        re.IGNORECASE,
    ),
)
_FILE = re.compile(
    r"\.(?:so|py|pyc|pt|pth|cu|cpp|c|h|json|txt|whl|a|o|toml|yaml)\b|dist-info|packages/"
)


def _by_form(text: str) -> str:
    """Replace what is a credential by its own form, or by the place where it stands."""
    text = _PEM.sub(rf"\1{SECRET}\2", text)
    text = _IN_URL.sub(_url, text)
    text = _JWT.sub(SECRET, text)
    text = _PREFIXED.sub(SECRET, text)
    for place in _PLACES:
        text = place.sub(rf"\1{SECRET}", text)
    return _CANDIDATE.sub(_candidate, text)


def _candidate(match: re.Match[str]) -> str:
    word = match[0]
    before = match.string[max(0, match.start() - 10) : match.start()]
    if _DIGEST.search(before) or _FILE.search(word) or not looks_random(word):
        return word
    return SECRET


def _url(match: re.Match[str]) -> str:
    """Return a URL without the user's name and password, and without random parts of its path."""
    path, mark, query = re.split(r"([?#].*|\Z)", match["rest"], maxsplit=1)
    user, at, rest = path.rpartition("@")  # a password may have an @ of its own
    if at and "/" not in user:
        path = f"{SECRET}@{rest}"
    parts = path.split("/")
    is_hook = "hook" in parts[0]
    for index in range(1, len(parts)):
        part = parts[index]
        is_marked = parts[index - 1] == "t" and len(part) > 4  # as conda has it
        if is_marked or looks_random(part) or (is_hook and _MIXED.match(part)):
            parts[index] = SECRET
            if is_hook:
                del parts[index + 1 :]
                break
        is_hook = is_hook or part in ("hooks", "webhooks", "webhook")
    return f"{match['scheme']}{'/'.join(parts)}{mark}{query}"


def without_credentials(text: str) -> str:
    """Return a text with its credentials replaced."""
    return _PAIR.sub(_pair, _by_option(_by_name(_by_form(text))))


def is_assigned(word: str) -> bool:
    """Return True if a word of a command line gives a credential: ``NAME=x``, ``--name=x``."""
    name, equals, value = word.lstrip("-+~").partition("=")
    return bool(equals) and is_secret_name(name) and _is_value(value, _SURE)
