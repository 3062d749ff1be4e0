//! The circumstances of a judgement.

/// The circumstances of a judgement, for its reports.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct About {
    /// The version of the program that judged.
    pub version: String,
    /// The server or client that was judged.
    pub target: String,
    /// The device of the judge. `None`: the judge's own octets of iWARP.
    pub device: Option<String>,
    /// The date and the time in UTC at which it began, as `YYYY-MM-DDThh:mm:ssZ`.
    pub date: String,
    /// Whether deviations from a SHOULD count.
    pub strict: bool,
    /// Whether cases that could exhaust a server were selected.
    pub hostile: bool,
    /// Whether nothing could be written.
    pub read_only: bool,
    /// The longest wait for each message, seconds.
    pub timeout: f64,
    /// Prefixes of addresses of the selected cases. If there are none, all were selected.
    pub only: Vec<String>,
    /// Prefixes of addresses of the cases that were left out.
    pub skip: Vec<String>,
    /// The files with cases.
    pub cases: Vec<String>,
}

impl About {
    /// Returns names and values, one pair for each value.
    pub(crate) fn properties(&self) -> Vec<(&'static str, String)> {
        let mut properties = vec![
            ("version", self.version.clone()),
            ("target", self.target.clone()),
            ("date", self.date.clone()),
            ("strict", self.strict.to_string()),
            ("hostile", self.hostile.to_string()),
            ("read-only", self.read_only.to_string()),
            ("timeout", self.timeout.to_string()),
        ];
        let device = self.device.clone();
        properties.extend(device.map(|it| ("device", it)));
        for (name, values) in [
            ("only", &self.only),
            ("skip", &self.skip),
            ("cases", &self.cases),
        ] {
            properties.extend(values.iter().map(|value| (name, value.clone())));
        }
        properties
    }
}
