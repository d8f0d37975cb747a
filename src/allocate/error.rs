//! Why nothing can be allocated, in the words of the scheduler.

use super::{DeviceId, MAX_RESULTS, Release, selectors::CelError};

/// Why an allocation was given up. Only [`Error::InvalidPools`] leaves other nodes to try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Somebody does not want to wait any longer.
    #[error("filter operation aborted: {0}")]
    Interrupted(Interruption),
    /// Nothing fits, and some pools could not be looked at.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// A slice or device is for nodes that cannot be told.
    #[error("gather pool information: failed to perform node selection for {of}: {reason}")]
    PoolPlacement {
        /// The slice, or the device in its slice.
        of: String,
        /// What is wrong.
        reason: String,
    },
    /// A device is for nodes that cannot be told.
    #[error("{0}")]
    DevicePlacement(String),
    /// Something is wrong with a request.
    #[error("claim {claim}, request {request}: {flaw}")]
    Request {
        /// The claim.
        claim: String,
        /// The request or subrequest.
        request: String,
        /// What is wrong.
        flaw: RequestFlaw,
    },
    /// A subrequest asks for capacity, which is switched off.
    #[error(
        "claim {claim}, subrequest {request}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
    )]
    SubrequestCapacity {
        /// The claim.
        claim: String,
        /// The subrequest.
        request: String,
    },
    /// A selector of a kind that is not known.
    #[error(
        "claim {claim}, request {request}, selector #{index}: CEL expression empty (unsupported selector type?)"
    )]
    Selector {
        /// The claim.
        claim: String,
        /// The request or subrequest.
        request: String,
        /// Which one.
        index: usize,
    },
    /// Too many devices, counted at the end of a claim.
    #[error(
        "claim {claim}: number of requested devices {count} exceeds the claim limit of {limit}",
        limit = MAX_RESULTS
    )]
    TooManyInClaim {
        /// The claim.
        claim: String,
        /// How many.
        count: u64,
    },
    /// A constraint of a kind that is not known.
    #[error("claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")]
    Constraint {
        /// The claim.
        claim: String,
        /// Which one.
        index: usize,
    },
    /// An expression cannot be evaluated.
    #[error("{owner}: selector #{index}{on}: {error}", on = on_device(device.as_deref()))]
    Cel {
        /// The class or claim.
        owner: String,
        /// Which selector.
        index: usize,
        /// The device, where the release names it.
        device: Option<String>,
        /// What is wrong.
        error: CelError,
    },
    /// A derived attribute is not an expression.
    #[error("compile derived attribute {name} failed: {reason}")]
    DerivedCompile {
        /// The attribute.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A derived attribute has no value.
    #[error("evaluate derived attribute {name} on device {device} failed: {reason}")]
    Derived {
        /// The attribute.
        name: String,
        /// The device.
        device: String,
        /// What is wrong.
        reason: String,
    },
    /// A slice selects nodes in a way that no result can repeat.
    #[error(
        "create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms"
    )]
    NodeSelector {
        /// The claim.
        claim: String,
        /// How many terms.
        terms: usize,
    },
    /// No choice of subrequests is small enough.
    #[error("allocation max size exceeded")]
    MaxSize,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFlaw {
    /// A list of alternatives, which is switched off.
    #[error("has subrequests, but the DRAPrioritizedList feature is disabled")]
    PrioritizedList,
    /// Asks for capacity, which is switched off.
    #[error("has capacity requests, but the DRAConsumableCapacity feature is disabled")]
    Capacity,
    /// Derives attributes, which is switched off.
    #[error("cannot handle request with derived attributes, the feature is disabled")]
    DerivedAttributes,
    /// Wants admin access, which is switched off.
    #[error("admin access is requested, but the feature is disabled")]
    AdminAccess,
    /// Names no class.
    #[error("missing device class name (unsupported request type?)")]
    NoClass,
    /// Names a class that is not there.
    #[error("could not retrieve device class {0}: deviceclass.resource.k8s.io {0:?} not found")]
    UnknownClass(String),
    /// Wants devices in a way that is not known.
    #[error("unsupported count mode {0}")]
    Mode(String),
    /// Wants all devices while some are unknown.
    #[error("asks for all devices, but resource pool {0} is currently being updated")]
    IncompletePool(String),
    /// Wants all devices while some are contradictory.
    #[error("asks for all devices, but resource pool {0} is currently invalid")]
    InvalidPool(String),
    /// Too many devices, counted at each request.
    #[error(
        "adding {adding} devices exceeds the claim limit of {limit}, with {counted} already accounted for",
        limit = MAX_RESULTS
    )]
    TooMany {
        /// How many more.
        adding: u64,
        /// How many before.
        counted: u64,
    },
    /// Wants all devices, which a constraint forbids.
    #[error("cannot add device {0} because a claim constraint would not be satisfied")]
    Unsatisfied(String),
    /// The capacity of a device cannot be calculated with.
    #[error("checking capacity for device {device}: capacity {name:?}: {flaw}")]
    DeviceCapacity {
        /// The device.
        device: String,
        /// Which capacity.
        name: String,
        /// What is wrong.
        flaw: CapacityFlaw,
    },
}

/// Why a capacity cannot be calculated with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityFlaw {
    /// Less than nothing.
    #[error("capacity value is negative")]
    Negative,
    /// Too large for whole numbers.
    #[error(
        "capacity request cannot be represented in the device's range arithmetic: request {0} exceeds MaxInt64"
    )]
    Large(String),
    /// Too large after rounding.
    #[error(
        "capacity request cannot be represented in the device's range arithmetic: rounding request {0} up to the next step passes MaxInt64"
    )]
    RoundedLarge(String),
    /// Too fine or too large for thousandths.
    #[error(
        "capacity request cannot be represented in the device's range arithmetic: request {0} is not a representable milli value"
    )]
    Thousandths(String),
    /// Too large for thousandths after rounding.
    #[error(
        "capacity request cannot be represented in the device's range arithmetic: rounding request {0} up to the next step passes the milli-value range"
    )]
    RoundedThousandths(String),
}

/// Why an allocation was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// Nobody wants the answer any more.
    #[error("context canceled")]
    Cancelled,
    /// It took too long.
    #[error("context deadline exceeded")]
    Deadline,
}

fn on_device(device: Option<&str>) -> String {
    device.map(|device| format!(" on device {device}")).unwrap_or_default()
}

impl Error {
    /// A selector of a class or claim failed on a device.
    pub(super) fn cel(
        release: Release,
        owner: String,
        index: usize,
        id: DeviceId<'_>,
        error: CelError,
    ) -> Self {
        let is_new = release >= Release::V1_37;
        let device = (is_new && matches!(error, CelError::Runtime(_))).then(|| id.to_string());
        let error = match error {
            CelError::Runtime(text) if is_new && text.contains("no such key:") => {
                CelError::Runtime(format!("{text}{MISSING_KEY_HINT}"))
            }
            error => error,
        };
        Self::Cel { owner, index, device, error }
    }
}

const MISSING_KEY_HINT: &str = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields";
