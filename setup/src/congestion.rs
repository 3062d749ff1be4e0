//! The option `--congestion`.

use rpcrdma_host::CongestionControl;

use crate::Failure;

/// Checks that connections of this process can have the congestion control that the user asked for.
///
/// # Errors
/// The system does not have it, or lets only privileged processes choose it.
pub fn check_congestion(asked: &CongestionControl) -> Result<(), Failure> {
    let Err(error) = asked.check() else {
        return Ok(());
    };
    let (why, list) = match CongestionControl::is_refused(&error) {
        true => ("only privileged processes may choose it here", "allowed"),
        false => ("this system does not have it", "available"),
    };
    Err(Failure::Work(format!(
        "--congestion {asked}: {why}: /proc/sys/net/ipv4/tcp_{list}_congestion_control has the list"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_that_the_system_lacks_is_refused_with_the_list_of_those_that_it_has() {
        let check = |name: &str| check_congestion(&name.parse().unwrap());
        assert!(check("reno").is_ok());
        let text = check("no-such-one").unwrap_err().to_string();
        assert!(text.contains("tcp_available_congestion_control"), "{text}");
    }
}
