//! Which devices a claim gets on this machine, with what others hold and wait for: pure.
//!
//! The allocator is the one that stands for the scheduler; here it sees one node, whose slices are those that
//! would be published.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        core::v1::Node,
        resource::v1::{AllocationResult, DeviceClass, ResourceSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{classes, manifest::RELEASE};
use crate::{
    allocate::{
        self, Allocated, Cel, Claim, Cluster, DeviceId, DeviceView, Expressions, Features, Held,
        Interruption, ModelError, Slice, Slices, Want, Wanted, allocate,
    },
    claims::Stored,
    device::{DeviceName, DriverName, NodeName},
    discover::Found,
    publish,
};

/// A question that takes longer is given up: others wait for the answer, too.
const LONGEST: Duration = Duration::from_secs(2);

/// Why nothing can be decided.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A class is not there.
    #[error("claim {claim}: request {request}: there is no class {class:?}; there are: {}", .known.join(", "))]
    NoClass {
        /// The claim.
        claim: String,
        /// The request or alternative.
        request: String,
        /// The class.
        class: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A quantity is none.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The allocator refuses.
    #[error(transparent)]
    Allocate(#[from] allocate::Error),
}

/// Everything that a decision depends on, besides the claim.
pub struct Machine<'a> {
    /// Our driver.
    pub driver: &'a DriverName,
    /// This node.
    pub node: &'a NodeName,
    /// Its devices.
    pub found: &'a Found,
    /// Its classes.
    pub classes: &'a [DeviceClass],
    /// Its claims, some of which hold devices.
    pub claims: &'a [Arc<Stored>],
    /// Names a new share of a device.
    pub new_share_id: &'a dyn Fn() -> String,
}

/// Devices that are not for whoever asks: others have waited for them longer.
pub type Withheld = BTreeSet<DeviceName>;

impl Machine<'_> {
    /// What a claim gets now; nothing where it does not fit.
    pub fn decide(&self, claim: &Stored, withheld: &Withheld) -> Result<Option<AllocationResult>, Error> {
        let held = Held::by(self.claims.iter().map(|stored| &stored.object), &Features::default_of(RELEASE))?;
        let mut allocated = held.allocated;
        let (driver, pool) = (self.driver.as_str(), self.node.as_str());
        let ids = withheld.iter().map(|device| DeviceId { driver, pool, device: device.as_str() });
        allocated.devices.extend(ids);
        self.ask(claim, &allocated)
    }

    /// Whether a claim would fit if nobody held anything.
    pub fn could_ever_fit(&self, claim: &Stored) -> Result<bool, Error> {
        self.ask(claim, &Allocated::default()).map(|result| result.is_some())
    }

    /// The devices that a claim could want: what its classes and expressions select, in whichever number.
    pub fn wanted_by(&self, claim: &Stored) -> Result<Withheld, Error> {
        let slices = self.slices();
        let slices: Vec<Slice<'_>> = slices.iter().map(Slice::try_from).collect::<Result<_, _>>()?;
        let expressions = Expressions::new(RELEASE, &Features::default_of(RELEASE));
        let model = Claim::try_from(&claim.object)?;
        let mut wanted = BTreeSet::new();
        for want in wants(&model) {
            let selectors = self.selectors(want);
            let selected = |slice: &Slice<'_>, device: &allocate::Device<'_>| {
                let view = DeviceView::of(slice.driver, device);
                // One that cannot be told may be wanted.
                selectors.iter().all(|expression| expressions.matches(expression, &view).unwrap_or(true))
            };
            let devices =
                slices.iter().flat_map(|slice| slice.devices.iter().map(move |device| (slice, device)));
            let devices = devices.filter(|(slice, device)| selected(slice, device));
            wanted.extend(devices.filter_map(|(_, device)| device.name.parse::<DeviceName>().ok()));
        }
        Ok(wanted)
    }

    fn ask(&self, claim: &Stored, allocated: &Allocated<'_>) -> Result<Option<AllocationResult>, Error> {
        let model = Claim::try_from(&claim.object)?;
        self.check_classes(&model)?;
        let slices = self.slices();
        let slices: Slices<'_> = slices.iter().map(Slice::try_from).collect::<Result<_, _>>()?;
        let features = Features::default_of(RELEASE);
        let deadline = Instant::now() + LONGEST;
        let cluster = Cluster {
            release: RELEASE,
            channel: features.channel(),
            features,
            allocated,
            classes: self.classes,
            slices: &slices,
            cel: &Expressions::new(RELEASE, &features),
            interruption: &|| (Instant::now() > deadline).then_some(Interruption::Deadline),
            new_share_id: self.new_share_id,
        };
        let metadata = ObjectMeta { name: Some(self.node.to_string()), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        Ok(allocate(&cluster, &node, &[model])?.and_then(|mut results| results.pop()))
    }

    fn check_classes(&self, claim: &Claim<'_>) -> Result<(), Error> {
        let is_known = |want: &&Want<'_>| self.classes.iter().any(|class| classes::name(class) == want.class);
        match wants(claim).find(|want| !is_known(want)) {
            None => Ok(()),
            Some(want) => Err(Error::NoClass {
                claim: claim.id.clone(),
                request: want.name.to_owned(),
                class: want.class.to_owned(),
                known: self.classes.iter().map(|class| classes::name(class).to_owned()).collect(),
            }),
        }
    }

    /// The expressions of a request and of its class.
    fn selectors<'w>(&'w self, want: &'w Want<'w>) -> Vec<&'w str> {
        let class = self.classes.iter().find(|class| classes::name(class) == want.class);
        let of_class = class.and_then(|class| class.spec.as_ref()?.selectors.as_ref()).into_iter().flatten();
        let of_class =
            of_class.filter_map(|selector| selector.cel.as_ref()).map(|cel| cel.expression.as_str());
        of_class.chain(want.selectors.iter().copied().flatten()).collect()
    }

    /// As they would be published.
    pub(super) fn slices(&self) -> Vec<ResourceSlice> {
        publish::named_slices(self.driver, self.node, &self.found.devices)
    }
}

fn wants<'c>(claim: &'c Claim<'c>) -> impl Iterator<Item = &'c Want<'c>> {
    claim.requests.iter().flat_map(|request| match &request.wanted {
        Wanted::Exactly(want) => std::slice::from_ref(want),
        Wanted::FirstAvailable(wants) => wants,
        Wanted::Unknown => &[],
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;

    use super::*;
    use crate::{
        config::Config,
        discover::{self, Roots},
        standalone::manifest::{Lifetime, complete, quick},
    };

    /// The devices that a claim was given.
    fn results(claim: &Stored) -> &[DeviceRequestAllocationResult] {
        let allocation = claim.object.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default()
    }

    /// A machine with these sources, on which claims come one after another.
    pub(in crate::standalone) struct Bench {
        driver: DriverName,
        node: NodeName,
        pub(in crate::standalone) found: Found,
        classes: Vec<DeviceClass>,
        pub(in crate::standalone) claims: Vec<Arc<Stored>>,
    }

    impl Bench {
        pub(in crate::standalone) fn new(sources: &str) -> Self {
            let config = Config::parse(Path::new("test"), &format!("sources: {sources}")).unwrap();
            let classes = classes::read(Path::new("/nowhere"), &config.driver).unwrap();
            let found = discover::scan(&config, &Roots::default());
            Self { driver: config.driver, node: "n1".parse().unwrap(), found, classes, claims: Vec::new() }
        }

        pub(in crate::standalone) fn machine(&self) -> Machine<'_> {
            Machine {
                driver: &self.driver,
                node: &self.node,
                found: &self.found,
                classes: &self.classes,
                claims: &self.claims,
                new_share_id: &|| String::from("share"),
            }
        }

        pub(in crate::standalone) fn claim(&self, select: &[&str], count: u32) -> Stored {
            let select: Vec<String> = select.iter().map(|text| (*text).to_owned()).collect();
            let uid = format!("{:08x}", self.claims.len()).parse().unwrap();
            complete(quick("claimfs.dev", &select, count), &uid, Lifetime::Run, &DriverName::default())
                .unwrap()
        }

        /// Gives a claim what it gets; the names of the devices, if it gets any.
        pub(in crate::standalone) fn give(
            &mut self,
            mut claim: Stored,
            withheld: &Withheld,
        ) -> Option<Vec<String>> {
            let result = self.machine().decide(&claim, withheld).unwrap()?;
            claim.object.status.get_or_insert_default().allocation = Some(result);
            let devices = results(&claim).iter().map(|result| result.device.clone()).collect();
            self.claims.push(Arc::new(claim));
            Some(devices)
        }
    }

    #[test]
    fn what_others_hold_is_not_given_again() {
        let mut bench = Bench::new("[{name: gpu, simulated: {count: 3}}]");
        let (none, two) = (Withheld::new(), bench.claim(&[], 2));
        assert_eq!(bench.give(two, &none).unwrap(), ["gpu-0", "gpu-1"]);
        let too_many = bench.claim(&[], 2);
        assert_eq!(bench.give(too_many.clone(), &none), None);
        assert!(bench.machine().could_ever_fit(&too_many).unwrap());
        assert!(!bench.machine().could_ever_fit(&bench.claim(&[], 4)).unwrap());
        let one = bench.claim(&[], 1);
        assert_eq!(bench.give(one, &none).unwrap(), ["gpu-2"]);
    }

    #[test]
    fn a_shared_device_is_given_as_often_as_it_may_be() {
        let mut bench = Bench::new("[{name: kvm, simulated: {count: 1}, shared: {max: 2}}]");
        for expected in [true, true, false] {
            let claim = bench.claim(&[], 1);
            assert_eq!(bench.give(claim, &Withheld::new()).is_some(), expected);
        }
    }

    #[test]
    fn what_others_have_waited_for_is_withheld() {
        let mut bench =
            Bench::new("[{name: gpu, simulated: {count: 1}}, {name: nic, simulated: {count: 1}}]");
        let nic = "device.attributes['claimfs.dev'].source == 'nic'";
        let first = bench.claim(&[nic], 1);
        let withheld = bench.machine().wanted_by(&first).unwrap();
        assert_eq!(withheld.iter().map(DeviceName::as_str).collect::<Vec<_>>(), ["nic-0"]);
        let any = bench.claim(&[], 1);
        assert_eq!(bench.give(any, &withheld).unwrap(), ["gpu-0"]);
        let late = bench.claim(&[nic], 1);
        assert_eq!(bench.give(late, &withheld), None);
    }

    #[test]
    fn a_class_that_is_not_there_is_named_with_those_that_are() {
        let bench = Bench::new("[{name: gpu, simulated: {count: 1}}]");
        let claim =
            complete(quick("gpu", &[], 1), &"u".parse().unwrap(), Lifetime::Run, &DriverName::default())
                .unwrap();
        let error = bench.machine().decide(&claim, &Withheld::new()).unwrap_err().to_string();
        assert_eq!(
            error,
            "claim default/run-u: request device: there is no class \"gpu\"; there are: claimfs.dev"
        );
    }
}
