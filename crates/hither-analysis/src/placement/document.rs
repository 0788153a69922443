//! The result of a placement as JSON: all counts, and all that is needed to repeat the run.

use std::collections::BTreeMap;

use hither_core::placement::Target;
use hither_sim::References;
use hither_trace::Trace;
use serde_json::{Value, json};

use super::case::{CaseResult, RunSettings};

/// The result of one case.
pub fn document(result: &CaseResult, running: &RunSettings, trace: &Trace) -> Value {
    let CaseResult { case, outcome } = result;
    let nodes = outcome.capacity.len();
    let totals = &outcome.totals;
    let rows: Vec<&[u64]> = outcome.traffic.chunks(nodes.max(1)).collect();
    let statistics: BTreeMap<_, _> = outcome.statistics.iter().copied().collect();
    let mut document = json!({
        "placement": case.configuration.spec.entry().name,
        "params": case.configuration.spec.values_by_name(),
        "nodes": outcome.nodes,
        "size": case.size,
        "capacity": outcome.capacity,
        "binding": running.binding.resolved(References::nodes(trace)),
        "costs": case.costs(&running.costs, trace.options().block_bytes).ok(),
        "warm_up": outcome.warm_up,
        "warm_up_references": running.warm_up.end(trace),
        "local_hit_ratio": totals.local_hit_ratio(),
        "hit_ratio": totals.hit_ratio(),
        "hops": totals.mean_hops(),
        "hit_latency_ns": totals.hit_latency_ns(),
        "miss_latency_ns": totals.miss_latency_ns(),
        "access_latency_ns": totals.access_latency_ns(),
        "modelled_time_ns": outcome.modelled_time_ns,
        "node_imbalance": outcome.node_imbalance(),
        "statistics": statistics,
        "timeline": outcome.timeline,
        "iterations": outcome.iterations,
        "traffic": rows,
        "processes": outcome.processes,
    });
    let fields = document.as_object_mut().expect("an object");
    // Each count has its own name, except the sum of hops: `hops` is the mean.
    if let Ok(Value::Object(counts)) = serde_json::to_value(totals) {
        for (name, count) in counts {
            let name = if name == "hops" {
                "hops_sum".to_owned()
            } else {
                name
            };
            fields.insert(name, count);
        }
    }
    if case.target() == Target::Files {
        let replacement = case.configuration.replacement;
        fields.insert("policy".to_owned(), replacement.to_string().into());
    }
    document
}

/// Indented JSON with lists of plain values on one line: a matrix of 256 nodes would otherwise take
/// 65,000 lines.
pub fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text.push('\n');
    text
}

fn write(out: &mut String, value: &Value, depth: usize) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let nested = |value: &Value| value.is_array() || value.is_object();
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (index, (name, value)) in fields.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                indent(out, depth + 1);
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push_str(": ");
                write(out, value, depth + 1);
            }
            indent(out, depth);
            out.push('}');
        }
        Value::Array(items) if items.iter().any(nested) => {
            for (index, item) in items.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                indent(out, depth + 1);
                write(out, item, depth + 1);
            }
            indent(out, depth);
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_lists_stay_on_a_line() {
        let value =
            json!({ "a": [[1, 2], [3, 4]], "b": {}, "c": [], "d\"": [{ "e": null }], "f": 0.1 });
        let text = pretty(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.contains("    [1,2],\n"), "{text}");
    }
}
