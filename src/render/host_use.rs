//! The resource usage of the host over time: a summary, charts for plots, and JSON.

use crate::Ctx;
use crate::size::glance;
use crate::time::iso;
use serde::Serialize;
use serde_json::{Value as Json, json};
use slotd_model::host_use::{GpuSpan, HostSpan, HostUse};
use slotd_model::view::NodeView;
use slotd_model::{Timestamp, Tres, counted};

/// One amount over time. `None` marks times in which no job ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    pub name: String,
    /// The description, with figures.
    pub title: String,
    pub values: Vec<Option<f64>>,
    /// The value at the top of the chart.
    pub top: f64,
}

const MB: f64 = (1u64 << 20) as f64;

/// Minimum peak swap usage for a chart, bytes.
const MIN_SWAP: f64 = MB;

fn most(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Returns the charts of a host's usage; none without any data.
pub fn charts(found: &HostUse, node: &NodeView) -> Vec<Chart> {
    let Some(whole) = &found.whole else { return Vec::new() };
    let mut all = Vec::new();
    let mut add = |name: &str, values: Vec<Option<f64>>, least_top: f64, title: String| {
        let top = most(&values).max(least_top);
        all.push(Chart { name: name.to_owned(), title, values, top });
    };
    let cpus = found.column(|bin| bin.cpus);
    let title =
        format!("CPUs in use: {:.2} of {}, peak {:.2}", whole.cpus, found.cpus, most(&cpus));
    add("CPUs", cpus, found.cpus.into(), title);
    let there = node.host.machine_mem_mb.max(node.host.mem_mb) as f64 * MB;
    let title = format!(
        "Memory in use: {} of {}, peak {}",
        glance(whole.mem_kb * 1024.0),
        glance(there),
        glance(whole.mem_max_kb * 1024.0)
    );
    add("Memory", found.column(|bin| bin.mem_kb * 1024.0), there, title);
    let swap = whole.swap_kb * 1024.0;
    if swap >= MIN_SWAP {
        add(
            "Swap",
            found.column(|bin| bin.swap_kb * 1024.0),
            swap,
            format!("Swap in use: peak {}", glance(swap)),
        );
    }
    let load = found.column(|bin| bin.load);
    let title = format!("Load: {:.2}, peak {:.2}", whole.load, most(&load));
    add("Load", load, found.cpus.into(), title);
    for id in &found.gpus {
        let Some(gpu) = whole.gpus.get(id) else { continue };
        if let Some(mean) = gpu.busy {
            let busy = found.gpu_column(*id, |gpu| gpu.busy);
            let title = format!("GPU {id}: {mean:.0}% busy, peak {:.0}%", most(&busy));
            add(&format!("GPU {id}"), busy, 100.0, title);
        }
        let memory = found.gpu_column(*id, |gpu| Some(gpu.mem_mb * MB));
        let there =
            node.host.gpus.iter().find(|known| known.id == *id).map_or(0, |known| known.mem_mb)
                as f64
                * MB;
        let of = if there > 0.0 { format!(" of {}", glance(there)) } else { String::new() };
        let title = format!(
            "Memory of GPU {id}: {}{of}, peak {}",
            glance(gpu.mem_mb * MB),
            glance(most(&memory))
        );
        add(&format!("Memory of GPU {id}"), memory, there, title);
    }
    all
}

/// Summarizes the period in one line.
pub fn summary(found: &HostUse, node: &NodeView, ctx: &Ctx) -> String {
    let (from, to) = (iso(found.from, &ctx.tz), iso(found.to, &ctx.tz));
    let hours = |ms: f64| ms / 3.6e6;
    let all = hours(found.to.since(found.from).as_millis() as f64);
    let Tres { cpus, .. } = node.host.tres();
    format!(
        "{} from {from} to {to}: jobs ran for {:.2} of {all:.2} hours, {}",
        node.host.name,
        hours(found.known_ms as f64),
        counted(cpus, "allocatable CPU")
    )
}

/// Returns the usage as JSON, with times in milliseconds since 1970 and memory in bytes.
pub fn json(spans: &[HostSpan], from: Timestamp, to: Timestamp, node: &NodeView) -> Json {
    let span = |span: &HostSpan| {
        let gpu = |(id, gpu): (&u32, &GpuSpan)| {
            json!({
                "id": id,
                "ms": gpu.ms,
                "busy_percent": gpu.busy_milli.map(|milli| f64::from(milli) / 10.0),
                "mem_max": gpu.mem_max_mb.saturating_mul(1 << 20),
                "mem_mean": gpu.mem_mean_mb.saturating_mul(1 << 20),
            })
        };
        json!({
            "from_ms": span.from,
            "to_ms": span.to,
            "ms": span.ms,
            "cpus": span.cpus,
            "cpu_us": span.cpu_us,
            "mem_max": span.mem_max_kb.saturating_mul(1024),
            "mem_mean": span.mem_mean_kb.saturating_mul(1024),
            "swap_max": span.swap_max_kb.saturating_mul(1024),
            "load": f64::from(span.load_centi) / 100.0,
            "gpus": span.gpus.iter().map(gpu).collect::<Vec<_>>(),
        })
    };
    json!({
        "host": node.host.name,
        "from": from.as_secs(),
        "to": to.as_secs(),
        "memory": node.host.machine_mem_mb.max(node.host.mem_mb).saturating_mul(1 << 20),
        "spans": spans.iter().map(span).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx, node};
    use slotd_model::gpu::Gpu;
    use slotd_model::partition::Host;

    fn spans() -> Vec<HostSpan> {
        let ms = |secs: i64| at(0).0 / 1000 - secs * 1000;
        let gpu =
            GpuSpan { ms: 10_000, busy_milli: Some(425), mem_max_mb: 2048, mem_mean_mb: 1024 };
        let used = HostSpan {
            ms: 10_000,
            cpus: 4,
            cpu_us: 20_000_000,
            mem_max_kb: 2 << 20,
            mem_mean_kb: 1 << 20,
            load_centi: 150,
            ..HostSpan::default()
        };
        vec![
            HostSpan { from: ms(40), to: ms(30), gpus: [(1, gpu)].into(), ..used.clone() },
            HostSpan { from: ms(10), to: ms(0), cpu_us: 0, ..used },
        ]
    }

    fn host() -> NodeView {
        let gpu = Gpu { id: 1, mem_mb: 8192, ..Gpu::default() };
        NodeView {
            host: Host {
                machine_mem_mb: 8192,
                mem_mb: 4096,
                gpus: vec![gpu],
                name: "vm".to_owned(),
                ..Host::default()
            },
            ..node(0)
        }
    }

    #[test]
    fn charts_are_scaled_to_the_capacity_of_the_host() {
        let found = HostUse::within(&spans(), at(40), at(0), 4);
        let charts = charts(&found, &host());
        let titles: Vec<(&str, &str)> =
            charts.iter().map(|chart| (chart.name.as_str(), chart.title.as_str())).collect();
        assert_eq!(
            titles,
            [
                ("CPUs", "CPUs in use: 1.00 of 4, peak 2.00"),
                ("Memory", "Memory in use: 1G of 8G, peak 2G"),
                ("Load", "Load: 1.50, peak 1.50"),
                ("GPU 1", "GPU 1: 42% busy, peak 42%"),
                ("Memory of GPU 1", "Memory of GPU 1: 1G of 8G, peak 1G"),
            ]
        );
        assert_eq!(charts[0].values, [Some(2.0), None, None, Some(0.0)]);
        assert_eq!(charts[3].values, [Some(42.5), None, None, None]);
        assert_eq!((charts[0].top, charts[3].top), (4.0, 100.0));
        let line = summary(&found, &host(), &ctx());
        assert!(
            line.starts_with("vm from 2026-11-20T23:39:18 to 2026-11-20T23:39:58: jobs ran for 0.01 of 0.01 hours"),
            "{line}"
        );
        let nothing = HostUse::within(&[], at(40), at(0), 4);
        assert!(super::charts(&nothing, &host()).is_empty());
    }

    #[test]
    fn json_has_bytes_and_milliseconds() {
        let json = json(&spans(), at(40), at(0), &host());
        let first = &json["spans"][0];
        assert_eq!(
            (&first["ms"], &first["mem_max"], &first["load"]),
            (&10_000.into(), &(2u64 << 30).into(), &1.5.into())
        );
        assert_eq!(first["gpus"][0]["busy_percent"], 42.5);
        assert_eq!(json["spans"][1]["gpus"], Json::Array(Vec::new()));
    }
}
