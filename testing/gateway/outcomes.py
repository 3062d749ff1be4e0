#!/usr/bin/env python3
"""Compares the outcomes of pynfs's cases through gateways with those of three direct runs.

    outcomes.py FOLDER SET RUN...
    outcomes.py --test

Fails where a case that ended alike in the direct runs ended otherwise in a run. With --test, checks that it does.
"""

import collections
import json
import pathlib
import sys


def outcome(case):
    """Returns the outcome of a case, and the message of a failure."""
    for kind in ("skipped", "error", "failure", "warning"):
        if kind in case:
            detail = case[kind]
            return kind, detail.get("message", "") if isinstance(detail, dict) else ""
    return "passed", ""


def outcomes(path):
    """Returns the outcomes of a run by code of the case."""
    return {case["code"]: outcome(case) for case in json.loads(path.read_text())["testcase"]}


def differences(direct, run):
    """The cases of a run that ended otherwise than in all direct runs. The message counts where it is stable."""
    found = []
    for code in sorted(direct[0]):
        before = [one.get(code) for one in direct]
        now = run.get(code)
        if None in before or len({kind for kind, _ in before}) != 1:
            continue
        if now is None or now[0] != before[0][0] or (len(set(before)) == 1 and now != before[0]):
            found.append((code, before[0], now))
    found += [(code, None, run[code]) for code in sorted(run.keys() - direct[0].keys())]
    return found


def test():
    passed, skipped = ("passed", ""), ("skipped", "")
    direct = [{"A": passed, "B": ("failure", "no"), "C": ("failure", f"at {run}"), "D": (kind, ""), "E": passed}
              for run, kind in enumerate(("passed", "failure", "passed"))]
    alike = {**direct[0], "C": ("failure", "at 4"), "D": skipped}
    assert not differences(direct, alike)
    for changed, codes in (
        ({"A": ("failure", "")}, ["A"]),
        ({"A": skipped}, ["A"]),
        ({"B": passed}, ["B"]),
        ({"B": ("failure", "the connection was closed")}, ["B"]),
        ({"C": passed}, ["C"]),
        ({"F": passed}, ["F"]),
    ):
        assert [code for code, _, _ in differences(direct, alike | changed)] == codes, changed
    assert [code for code, _, _ in differences(direct, {"B": ("failure", "no")})] == ["A", "C", "E"]
    assert outcome({"code": "A", "failure": {"message": "no", "err": "where"}}) == ("failure", "no")
    assert outcome({"code": "A", "skipped": 1}) == skipped and outcome({"code": "A"}) == passed


def main():
    if sys.argv[1:] == ["--test"]:
        test()
        return
    folder, cases, runs = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    direct = [outcomes(folder / f"direct-{number}.{cases}.json") for number in (1, 2, 3)]
    unstable = [code for code in direct[0] if len({one.get(code, ("", ""))[0] for one in direct}) != 1]
    kinds = collections.Counter(kind for code, (kind, _) in direct[0].items() if code not in unstable)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"pynfs {cases}: {len(direct[0])} cases, {len(unstable)} unstable {unstable}; directly {counts}")
    wrong = 0
    for name in runs:
        found = differences(direct, outcomes(folder / f"{name}.{cases}.json"))
        print(f"  {name}: " + (f"{len(found)} ended otherwise" if found else "all others the same"))
        for code, before, now in found:
            print(f"    {code}: directly {before}, now {now}")
        wrong += len(found)
    if not kinds["passed"]:
        sys.exit("no case passed directly")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
