"""Checks licences, duplicate versions and sources of all dependencies against deny.toml.

That file is in the format of cargo-deny, which takes three minutes to build on two processors. Of its
checks this program has those that deny.toml names, except advisories: these are for check_advisories.py.
"""

import collections
import json
import re
import subprocess
import sys
import tomllib

rules = tomllib.load(open("deny.toml", "rb"))
command = ["cargo", "metadata", "--format-version", "1", "--all-features", "--locked"]
packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
problems = []


def permitted(expression, allowed):
    """Whether an SPDX expression can be satisfied with the licences that are allowed."""
    # "/" is how packages once wrote OR.
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def any_of():
        fits = all_of()
        while words[:1] == ["OR"]:
            del words[0]
            # The right side is read in any case.
            right = all_of()
            fits = fits or right
        return fits

    def all_of():
        fits = one()
        while words[:1] == ["AND"]:
            del words[0]
            right = one()
            fits = fits and right
        return fits

    def one():
        word = words.pop(0)
        if word == "(":
            fits = any_of()
            if not words or words.pop(0) != ")":
                raise ValueError
            return fits
        if words[:1] == ["WITH"]:
            word += " WITH " + words[1]
            del words[:2]
        return word in allowed

    try:
        fits = any_of()
    except (IndexError, ValueError):
        fits = False
    return fits and not words


def check_licences():
    allowed = set(rules["licenses"]["allow"])
    for package in packages:
        if not permitted(package["license"] or "", allowed):
            problems.append(f"{package['name']} {package['version']}: licence {package['license']!r} is not allowed")


def check_duplicates():
    if rules["bans"]["multiple-versions"] != "deny":
        sys.exit("deny.toml: this program expects multiple-versions = \"deny\"")
    versions = collections.defaultdict(set)
    for package in packages:
        versions[package["name"]].add(package["version"])
    for skip in rules["bans"]["skip"]:
        name, version = skip["crate"].split("@")
        skipped = {have for have in versions[name] if (have + ".").startswith(version + ".")}
        if not skip.get("reason"):
            problems.append(f"deny.toml: {skip['crate']} has no reason")
        if not skipped or len(versions[name]) == 1:
            problems.append(f"deny.toml: {skip['crate']} is not there beside another version any more")
        versions[name] -= skipped
    for name, found in versions.items():
        if len(found) > 1:
            problems.append(f"{name} is there in versions {', '.join(sorted(found))}")


def check_sources():
    if [rules["sources"][key] for key in ("unknown-registry", "unknown-git")] != ["deny", "deny"]:
        sys.exit("deny.toml: this program expects that unknown sources are denied")
    for package in packages:
        if package["source"] and not package["source"].startswith("registry+"):
            problems.append(f"{package['name']} {package['version']} comes from {package['source']}, no registry")
        for dependency in package["dependencies"]:
            # Null is the default registry.
            if dependency["registry"]:
                problems.append(f"{package['name']} takes {dependency['name']} from {dependency['registry']}")


check_licences()
check_duplicates()
check_sources()
for problem in problems:
    print(problem, file=sys.stderr)
print(f"{len(packages)} packages, {len(problems)} problems")
sys.exit(bool(problems))
