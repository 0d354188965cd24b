"""The file rules of an AppArmor profile, as far as we must read them (apparmor.d(5))."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# "/path/**" rwk,   /path/* r,   rw /path,   deny /path w,   — each with qualifiers before it
_RULE = re.compile(
    r"""(?P<qualifiers>(?:(?:allow|deny|audit|owner|file)\s+)*)
        (?:(?P<before>[a-zA-Z]+)\s+)?
        (?:"(?P<quoted>/[^"]+)"|(?P<bare>/[^\s,]+(?:,[^\s,]+)*))
        (?:\s+(?P<after>[a-zA-Z]+))?
        \s*,\s*(?:\#.*)?""",
    re.VERBOSE,
)
_TOKEN = re.compile(r"\*\*|\[[^\]]*\]|\\.|.")
_WILDCARDS = {"**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


@dataclass(frozen=True, slots=True)
class Rule:
    path: re.Pattern[str]
    permissions: frozenset[str]
    denies: bool


def read_rules(path: Path) -> list[Rule]:
    """The rules of a file; none if there is no such file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [rule for line in lines if (rule := parse_rule(line))]


def parse_rule(line: str) -> Rule | None:
    """None for what is no rule on files, and for a rule that holds only for a file's owner:
    the bases are not QEMU's."""
    match = _RULE.fullmatch(line.strip())
    if not match or "owner" in match["qualifiers"]:
        return None
    return Rule(
        path=_pattern(match["quoted"] or match["bare"]),
        permissions=frozenset(match["before"] or match["after"] or ""),
        denies="deny" in match["qualifiers"],
    )


def permissions(rules: Iterable[Rule], path: str) -> set[str]:
    """The letters that the rules together allow on a file. A denial always wins."""
    allowed: set[str] = set()
    denied: set[str] = set()
    for rule in rules:
        if rule.path.fullmatch(path):
            (denied if rule.denies else allowed).update(rule.permissions)
    return allowed - denied


def _pattern(glob: str) -> re.Pattern[str]:
    written, depth = "", 0
    for token in _TOKEN.findall(glob):
        depth += {"{": 1, "}": -1}.get(token, 0)
        written += "|" if token == "," and depth else _translate(token)
    try:
        return re.compile(written)
    except re.error:
        return re.compile(re.escape(glob))


def _translate(token: str) -> str:
    if token in _WILDCARDS:
        return _WILDCARDS[token]
    if len(token) > 1:  # a class of letters, or one letter that a backslash makes plain
        return token if token.startswith("[") else re.escape(token[1])
    return re.escape(token)
