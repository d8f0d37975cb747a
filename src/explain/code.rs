//! Codes by which a finding can be looked up and matched on. A code is never given a new meaning; `docs/codes.md` lists
//! them all.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::allocate::{CelError, Error, Obstacle, RequestFlaw};

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Everything fits.
    Fits = 100,
    /// A request names a class that is not there.
    UnknownClass = 101,
    /// An expression is none.
    Expression = 102,
    /// An expression fails on a device.
    Evaluation = 103,
    /// A claim wants more devices than a claim can have.
    TooMany = 104,
    /// A request or constraint is of a kind that is not known, or names no class.
    Unsupported = 105,
    /// Something is asked for that is switched off.
    Disabled = 106,
    /// A slice or device is for nodes that cannot be told.
    NodeSelector = 107,
    /// It took too long.
    Interrupted = 108,
    /// A device is in use.
    InUse = 110,
    /// A selector does not choose a device.
    Selector = 111,
    /// A device has a taint that is not tolerated.
    Taint = 112,
    /// A device does not have enough capacity.
    Capacity = 113,
    /// Devices that share something with a device leave too little.
    Counters = 114,
    /// A device is for other nodes.
    OtherNode = 115,
    /// A constraint cannot be satisfied.
    Constraint = 116,
    /// A device has to be waited for, which is switched off.
    BindingConditions = 117,
    /// A device cannot stand beside those that are allocated.
    Groups = 118,
    /// Requests or claims want the same devices.
    Competition = 119,
    /// Slices of a pool are missing.
    IncompletePool = 120,
    /// A pool contradicts itself.
    InvalidPool = 121,
    /// There are no devices.
    NoDevices = 122,
    /// No device has the attribute or capacity that an expression looks at.
    UnknownName = 130,
    /// No device has anything in the domain that an expression looks at.
    UnknownDomain = 131,
    /// A quantity is compared with something else.
    Quantity = 132,
    /// An attribute is of another type than what an expression does with it needs.
    OtherType = 133,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::Fits,
        Self::UnknownClass,
        Self::Expression,
        Self::Evaluation,
        Self::TooMany,
        Self::Unsupported,
        Self::Disabled,
        Self::NodeSelector,
        Self::Interrupted,
        Self::InUse,
        Self::Selector,
        Self::Taint,
        Self::Capacity,
        Self::Counters,
        Self::OtherNode,
        Self::Constraint,
        Self::BindingConditions,
        Self::Groups,
        Self::Competition,
        Self::IncompletePool,
        Self::InvalidPool,
        Self::NoDevices,
        Self::UnknownName,
        Self::UnknownDomain,
        Self::Quantity,
        Self::OtherType,
    ];
}

impl Code {
    /// Whether something is wrong with the claims themselves, wherever they are allocated.
    #[must_use]
    pub fn is_bad_input(self) -> bool {
        matches!(
            self,
            Self::UnknownClass
                | Self::Expression
                | Self::TooMany
                | Self::Unsupported
                | Self::Disabled
                | Self::Quantity
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CFS{:04}", *self as u16)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<&Obstacle<'_>> for Code {
    fn from(obstacle: &Obstacle<'_>) -> Self {
        match obstacle {
            Obstacle::InUse => Self::InUse,
            Obstacle::BindingConditions => Self::BindingConditions,
            Obstacle::Selector(selector) => match &selector.error {
                None => Self::Selector,
                Some(error) => error.into(),
            },
            Obstacle::Placement => Self::OtherNode,
            Obstacle::NoCapacity { .. } | Obstacle::Amount { .. } | Obstacle::Full { .. } => Self::Capacity,
            Obstacle::Counters(_) => Self::Counters,
            Obstacle::Groups => Self::Groups,
            Obstacle::Taint(_) => Self::Taint,
            Obstacle::NoAttribute { .. } => Self::Constraint,
        }
    }
}

impl From<&CelError> for Code {
    fn from(error: &CelError) -> Self {
        match error {
            // The only type with this name that can be compared with anything.
            CelError::Compile(text) if text.contains("kubernetes.Quantity") => Self::Quantity,
            CelError::Compile(_) => Self::Expression,
            CelError::Runtime(text) if text.contains("no such overload") => Self::OtherType,
            CelError::Runtime(_) => Self::Evaluation,
        }
    }
}

impl From<&Error> for Code {
    fn from(error: &Error) -> Self {
        match error {
            Error::Interrupted(_) => Self::Interrupted,
            Error::InvalidPools => Self::InvalidPool,
            Error::PoolPlacement { .. } | Error::DevicePlacement(_) | Error::NodeSelector { .. } => {
                Self::NodeSelector
            }
            Error::Request { flaw, .. } => flaw.into(),
            Error::SubrequestCapacity { .. } => Self::Disabled,
            Error::Selector { .. } | Error::Constraint { .. } => Self::Unsupported,
            Error::TooManyInClaim { .. } | Error::MaxSize => Self::TooMany,
            Error::Cel { error, .. } => error.into(),
            Error::DerivedCompile { .. } => Self::Expression,
            Error::Derived { .. } => Self::Evaluation,
        }
    }
}

impl From<&RequestFlaw> for Code {
    fn from(flaw: &RequestFlaw) -> Self {
        match flaw {
            RequestFlaw::PrioritizedList
            | RequestFlaw::Capacity
            | RequestFlaw::DerivedAttributes
            | RequestFlaw::AdminAccess => Self::Disabled,
            RequestFlaw::NoClass | RequestFlaw::Mode(_) => Self::Unsupported,
            RequestFlaw::UnknownClass(_) => Self::UnknownClass,
            RequestFlaw::IncompletePool(_) => Self::IncompletePool,
            RequestFlaw::InvalidPool(_) => Self::InvalidPool,
            RequestFlaw::TooMany { .. } => Self::TooMany,
            RequestFlaw::Unsatisfied(_) => Self::Constraint,
            RequestFlaw::DeviceCapacity { .. } => Self::Capacity,
        }
    }
}
