//! The fields of a [`CostModel`] by name, for command lines, files, and reports that say where each
//! value came from.

use std::time::Duration;

use crate::CostModel;

/// A field of a [`CostModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CostParameter {
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

/// A mutable reference to a field.
#[derive(Debug, PartialEq, Eq)]
pub enum Figure<'a> {
    /// A duration.
    Time(&'a mut Duration),
    /// A rate in bytes per second.
    Rate(&'a mut u64),
}

impl CostParameter {
    /// All fields.
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

    /// Returns the name of the field.
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

    /// Returns a short description of the field.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::LinkDelay => "of the link, each way",
            Self::Rate => "of Sends",
            Self::ReadRate => "of RDMA Reads",
            Self::WriteRate => "of RDMA Writes",
            Self::PerMessage => "of a message or RDMA operation, both ends",
            Self::Registration => "of a piece of memory",
            Self::RegistrationPage => "of each page of that memory",
            Self::Invalidation => "of a registration, by the requester itself",
            Self::InvalidationWait => "until the requester knows that these have completed",
            Self::Interrupt => "from a completion to the program that waits for it",
            Self::ReadTurnaround => "from an RDMA Read's arrival to its response",
            Self::CopyRate => "of copies at the receiver of what was sent inline",
            Self::Group => "that a message in several Sends takes in addition",
            Self::Placement => "that a message takes in addition whose data Sends place",
            Self::Call => "that every call takes, whatever its transfer mode",
        }
    }

    /// Returns the field in `model`.
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

    /// Returns the field with this name.
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
    fn every_parameter_has_its_own_field_and_name() {
        let mut model = CostModel::default();
        for (number, parameter) in (1..).zip(CostParameter::ALL) {
            assert_eq!(CostParameter::named(parameter.name()), Some(parameter));
            match parameter.of(&mut model) {
                Figure::Time(time) => *time = Duration::from_nanos(number),
                Figure::Rate(rate) => *rate = number,
            }
        }
        for (number, parameter) in (1..).zip(CostParameter::ALL) {
            let value = match parameter.of(&mut model) {
                Figure::Time(time) => time.as_nanos() as u64,
                Figure::Rate(rate) => *rate,
            };
            assert_eq!(value, number, "{}", parameter.name());
        }
        assert_eq!(CostParameter::named("speed"), None);
    }
}
