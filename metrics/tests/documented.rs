//! `docs/metrics.md` lists the metrics that there are, and no others.

use std::fs;
use std::path::Path;

use rpcrdma_metrics::{Family, Kind, families};

fn row(family: &Family) -> String {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels: Vec<String> = family.labels.iter().map(|it| format!("`{it}`")).collect();
    let (name, labels) = (family.query_name(), labels.join(", "));
    format!("| `{name}` | {kind} | {labels} | {} |", family.help)
}

#[test]
fn the_page_lists_every_metric_in_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(page).unwrap();
    let listed: Vec<&str> = text
        .lines()
        .filter(|it| it.starts_with("| `rpcrdma_"))
        .collect();
    let wanted: Vec<String> = families::ALL.iter().map(|family| row(family)).collect();
    assert_eq!(
        listed,
        wanted,
        "the rows should be\n{}\n",
        wanted.join("\n")
    );
}
