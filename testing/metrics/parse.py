"""Parses one answer in the text format 0.0.4 and one in OpenMetrics, which must say the same.

    python3 testing/metrics/parse.py TEXT OPENMETRICS
"""

import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

names = []
for file, parse in zip(sys.argv[1:], (text, openmetrics)):
    with open(file, encoding="utf-8") as answer:
        families = list(parse(answer.read()))
    if any(family.type == "unknown" or not family.documentation for family in families):
        sys.exit(f"{file}: a family without a type or help")
    names.append({(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples})
if names[0] != names[1]:
    sys.exit(f"the formats differ: {sorted(names[0] ^ names[1])[:10]}")
print(f"{len(names[1])} samples")
