//! The figures of a [`CostModel`] by name: for command lines, files, and whoever says where each came
//! from.

use std::time::Duration;

use crate::CostModel;

/// A figure of a [`CostModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// [`CostModel::link_delay`].
    LinkDelay,
    /// [`CostModel::rate`].
    Rate,
    /// [`CostModel::read_rate`].
    ReadRate,
    /// [`CostModel::write_rate`].
    WriteRate,
    /// [`CostModel::per_message`].
    PerMessage,
    /// [`CostModel::registration`].
    Registration,
    /// [`CostModel::registration_page`].
    RegistrationPage,
    /// [`CostModel::invalidation`].
    Invalidation,
    /// [`CostModel::invalidation_wait`].
    InvalidationWait,
    /// [`CostModel::interrupt`].
    Interrupt,
    /// [`CostModel::read_turnaround`].
    ReadTurnaround,
    /// [`CostModel::copy_rate`].
    CopyRate,
    /// [`CostModel::group`].
    Group,
    /// [`CostModel::placement`].
    Placement,
    /// [`CostModel::call`].
    Call,
}

/// A place for a figure.
#[derive(Debug, PartialEq, Eq)]
pub enum Figure<'a> {
    /// How long something takes.
    Time(&'a mut Duration),
    /// Bytes a second.
    Rate(&'a mut u64),
}

impl Parameter {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::LinkDelay,
        Self::Rate,
        Self::ReadRate,
        Self::WriteRate,
        Self::PerMessage,
        Self::Registration,
        Self::RegistrationPage,
        Self::Invalidation,
        Self::InvalidationWait,
        Self::Interrupt,
        Self::ReadTurnaround,
        Self::CopyRate,
        Self::Group,
        Self::Placement,
        Self::Call,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LinkDelay => "link-delay",
            Self::Rate => "rate",
            Self::ReadRate => "read-rate",
            Self::WriteRate => "write-rate",
            Self::PerMessage => "per-message",
            Self::Registration => "registration",
            Self::RegistrationPage => "registration-page",
            Self::Invalidation => "invalidation",
            Self::InvalidationWait => "invalidation-wait",
            Self::Interrupt => "interrupt",
            Self::ReadTurnaround => "read-turnaround",
            Self::CopyRate => "copy-rate",
            Self::Group => "group",
            Self::Placement => "placement",
            Self::Call => "call",
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::LinkDelay => "of the link, each way",
            Self::Rate => "of Sends",
            Self::ReadRate => "of RDMA Reads",
            Self::WriteRate => "of RDMA Writes",
            Self::PerMessage => "of a message or RDMA operation, both ends",
            Self::Registration => "of a piece of memory",
            Self::RegistrationPage => "the same, for each page of it",
            Self::Invalidation => "of a registration, by the requester itself",
            Self::InvalidationWait => "until all of these are known to have ended",
            Self::Interrupt => "from a completion to whoever waits for it",
            Self::ReadTurnaround => "from an RDMA Read's arrival to its response",
            Self::CopyRate => "of what does not arrive where it is wanted",
            Self::Group => "of a message in several Sends, besides",
            Self::Placement => "of a message with data that Sends place, besides",
            Self::Call => "what every call takes besides",
        }
    }

    /// Its place in a model.
    pub fn of(self, model: &mut CostModel) -> Figure<'_> {
        match self {
            Self::LinkDelay => Figure::Time(&mut model.link_delay),
            Self::Rate => Figure::Rate(&mut model.rate),
            Self::ReadRate => Figure::Rate(&mut model.read_rate),
            Self::WriteRate => Figure::Rate(&mut model.write_rate),
            Self::PerMessage => Figure::Time(&mut model.per_message),
            Self::Registration => Figure::Time(&mut model.registration),
            Self::RegistrationPage => Figure::Time(&mut model.registration_page),
            Self::Invalidation => Figure::Time(&mut model.invalidation),
            Self::InvalidationWait => Figure::Time(&mut model.invalidation_wait),
            Self::Interrupt => Figure::Time(&mut model.interrupt),
            Self::ReadTurnaround => Figure::Time(&mut model.read_turnaround),
            Self::CopyRate => Figure::Rate(&mut model.copy_rate),
            Self::Group => Figure::Time(&mut model.group),
            Self::Placement => Figure::Time(&mut model.placement),
            Self::Call => Figure::Time(&mut model.call),
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|parameter| parameter.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_place_and_a_name_of_its_own() {
        let mut model = CostModel::default();
        for (number, parameter) in (1..).zip(Parameter::ALL) {
            assert_eq!(Parameter::named(parameter.name()), Some(parameter));
            match parameter.of(&mut model) {
                Figure::Time(time) => *time = Duration::from_nanos(number),
                Figure::Rate(rate) => *rate = number,
            }
        }
        for (number, parameter) in (1..).zip(Parameter::ALL) {
            let value = match parameter.of(&mut model) {
                Figure::Time(time) => time.as_nanos() as u64,
                Figure::Rate(rate) => *rate,
            };
            assert_eq!(value, number, "{}", parameter.name());
        }
        assert_eq!(Parameter::named("speed"), None);
    }
}
