#!/usr/bin/env python3
"""Says what idnits found, from its JSON, and fails on errors and warnings: nits.py FILE"""
import json
import pathlib
import sys

found = json.loads(pathlib.Path(sys.argv[1]).read_text())
counts = found["nitsBySeverity"]
for nit in found["nits"]:
    print(f"{nit['severity']} {nit['code']}: {nit['desc']}", file=sys.stderr)
print(f"{pathlib.Path(found['file']['path']).suffix}: idnits found {counts['error']} errors, {counts['warning']} warnings")
sys.exit(1 if counts["error"] or counts["warning"] else 0)
