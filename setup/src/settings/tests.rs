//! Tests of settings.

use super::*;

fn setting(name: &str) -> &'static Setting {
    let mut known = STANDARD.iter();
    known.find(|known| known.name == name).unwrap()
}

#[test]
fn names_differ_and_defaults_are_within_the_bounds() {
    let client = RdmaClientOptions::new(rpcrdma_protocols::base());
    let server = RdmaServerOptions::new(rpcrdma_protocols::base());
    let all = STANDARD;
    for (at, setting) in all.iter().enumerate() {
        assert!(all[..at].iter().all(|other| other.name != setting.name));
        let defaults = match &setting.effect {
            Effect::Common(it) => vec![(it.get)(&client.common), (it.get)(&server.common)],
            Effect::Client(it) => vec![(it.get)(&client)],
            Effect::Server(it) => vec![(it.get)(&server)],
            Effect::Placing(it) => vec![(it.get)(&Placing::default())],
            Effect::Simulation(default) | Effect::Measurement(default) => vec![default()],
            Effect::Own { default } => vec![*default],
        };
        for default in defaults {
            let text = match setting.unit {
                Unit::Time => format!("{default}ns"),
                Unit::Switch | Unit::Rate | Unit::Share => setting.unit.show(default),
                Unit::Number | Unit::Bytes => default.to_string(),
            };
            assert_eq!(setting.parse(&text), Ok(default), "{}", setting.name);
        }
    }
}

/// Each is set to both bounds, which come back from the options, and nothing else changes them.
#[test]
fn what_is_set_is_in_the_options() {
    for setting in STANDARD.iter() {
        let (least, most) = setting.bounds;
        for value in [least, most] {
            let mut settings = Settings::default();
            let text = setting.unit.write(value);
            settings.set(setting, &text).unwrap();
            assert_eq!(settings.to_string(), format!("{}={text}", setting.name));
            let mut client = RdmaClientOptions::new(rpcrdma_protocols::base());
            let mut server = RdmaServerOptions::new(rpcrdma_protocols::base());
            settings.apply_to_client(&mut client);
            settings.apply_to_server(&mut server);
            let found = match &setting.effect {
                Effect::Common(it) => {
                    assert_eq!((it.get)(&server.common), value);
                    (it.get)(&client.common)
                }
                Effect::Client(it) => (it.get)(&client),
                Effect::Server(it) => (it.get)(&server),
                Effect::Placing(it) => (it.get)(&settings.placing()),
                Effect::Simulation(_) | Effect::Measurement(_) | Effect::Own { .. } => {
                    settings.value(setting)
                }
            };
            assert_eq!(found, value, "{}", setting.name);
        }
    }
}

#[test]
fn features_read_settings_of_this_project_as_ends_have_them() {
    let mut settings = Settings::default();
    let credits = setting("credits");
    let client = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
    let server = RdmaServerOptions::new(rpcrdma_protocols::base()).common;
    assert_eq!(settings.value(credits), u64::from(client.credits));
    let served = settings.value_at(credits, Side::Server);
    assert_eq!(served, u64::from(server.credits));
    settings.set(credits, "7").unwrap();
    assert_eq!(settings.value(credits), 7);
    assert_eq!(settings.value_at(credits, Side::Server), 7);
}

#[test]
fn impossible_values_are_refused_with_the_bounds() {
    for (name, text, said) in [
        (
            "credits",
            "0",
            "credits: `0` is not possible: write 1 to 16384",
        ),
        (
            "credits",
            "many",
            "credits: `many` is not a number: write 1 to 16384",
        ),
        (
            "inline-send",
            "5000",
            "inline-send: `5000` is not possible: write 1 KiB to 256 KiB in steps of 1 KiB",
        ),
        (
            "patience",
            "6s",
            "patience: `6s` is not possible: write 1ms to 5s",
        ),
        (
            "private-data",
            "no",
            "private-data: `no` is neither on nor off: write on or off",
        ),
    ] {
        assert_eq!(setting(name).parse(text).unwrap_err(), said);
    }
    let refused = setting("head").parse("8q").unwrap_err();
    assert!(
        refused.ends_with("write 64 B to 64 KiB in steps of 64 B"),
        "{refused}"
    );
}

#[test]
fn each_end_refuses_what_is_for_the_other() {
    let mut settings = Settings::default();
    settings.set(setting("credits"), "8").unwrap();
    assert_eq!((settings.of_clients(), settings.of_servers()), (None, None));
    settings.set(setting("patience"), "1s").unwrap();
    assert_eq!(settings.of_clients(), Some("patience"));
    settings.set(setting("max-fetched"), "1M").unwrap();
    assert_eq!(settings.of_servers(), Some("max-fetched"));
    let again = settings.set(setting("credits"), "9").unwrap_err();
    assert_eq!(again, "credits is set to 8 already");
}

#[test]
fn help_says_the_bounds_and_the_defaults() {
    let help = setting("credits").to_string();
    let beginning = "credits=1 to 16384 [client 128, server 64]\n    Client: calls";
    assert!(help.starts_with(beginning), "{help}");
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
    let help = setting("target").to_string();
    let beginning = "target=4 KiB to 1 MiB in steps of 4 KiB [64 KiB]\n";
    assert!(help.starts_with(beginning), "{help}");
}
