//! Options for metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Options of commands that have metrics.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Answer HTTP requests for /metrics on this port of this machine's loopback address, or on that of an
    /// address: in the format of Prometheus, or as OpenMetrics where that is asked for. 0 takes a free
    /// port. There is no encryption and no password. See docs/metrics.md
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// Parses where metrics are to be had.
fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text.parse().map_err(|_| match text.parse::<IpAddr>() {
            Ok(_) => "the port is missing: write ADDR:PORT, or [ADDR]:PORT with IPv6".to_owned(),
            Err(_) => "write a port, ADDR:PORT, or [ADDR]:PORT with IPv6".to_owned(),
        }),
    }
}

/// Options of `mountstats`.
#[derive(Debug, Args)]
pub(crate) struct MountstatsArgs {
    /// Where `rpcrdma mount` has mounted something
    #[arg(required = true, value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub(crate) mount_points: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_for_this_machine_unless_an_address_is_given() {
        let shown = |text: &str| address(text).map(|it| it.to_string());
        assert_eq!(shown("9100"), Ok("127.0.0.1:9100".to_owned()));
        assert_eq!(shown("0.0.0.0:9100"), Ok("0.0.0.0:9100".to_owned()));
        assert_eq!(shown("[::1]:0"), Ok("[::1]:0".to_owned()));
        assert!(shown("10.0.0.1").unwrap_err().contains("port is missing"));
        assert!(shown("65536").is_err() && shown("host:1").is_err() && shown("").is_err());
    }
}
