//! What the API server refuses of a claim, with its place.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClaimConfiguration, DeviceConstraint, DeviceRequest, DeviceSelector,
    DeviceSubRequest, DeviceToleration, ExactDeviceRequest,
};

use super::{Error, RELEASE};
use crate::{
    cel,
    claims::Parameters,
    device::{DriverName, RequestName},
};

/// Looks at one claim.
pub(super) struct Check<'a> {
    /// What it is called.
    pub(super) claim: &'a str,
}

impl Check<'_> {
    fn wrong(&self, field: &str, reason: impl Into<String>) -> Error {
        Error::Field { claim: self.claim.to_owned(), field: field.to_owned(), reason: reason.into() }
    }

    pub(super) fn requests(&self, requests: &mut [DeviceRequest]) -> Result<(), Error> {
        const FIELD: &str = "spec.devices.requests";
        if requests.is_empty() {
            return Err(self.wrong(FIELD, "it asks for nothing; there must be one request at least"));
        }
        let mut names = BTreeSet::new();
        for (index, request) in requests.iter_mut().enumerate() {
            let field = format!("{FIELD}[{index}]");
            self.name(&mut names, &request.name, &field)?;
            match (&mut request.exactly, request.first_available.as_deref_mut().unwrap_or_default()) {
                (Some(exactly), []) => self.want(Want::from(exactly), &format!("{field}.exactly"))?,
                (None, alternatives @ [_, ..]) => {
                    let mut names = BTreeSet::new();
                    for (index, want) in alternatives.iter_mut().enumerate() {
                        let field = format!("{field}.firstAvailable[{index}]");
                        self.name(&mut names, &want.name.clone(), &field)?;
                        self.want(Want::from(want), &field)?;
                    }
                }
                _ => return Err(self.wrong(&field, "there must be either exactly or firstAvailable")),
            }
        }
        Ok(())
    }

    pub(super) fn constraints(
        &self,
        constraints: &[DeviceConstraint],
        requests: &[DeviceRequest],
    ) -> Result<(), Error> {
        for (index, constraint) in constraints.iter().enumerate() {
            let field = format!("spec.devices.constraints[{index}]");
            self.mentioned(constraint.requests.as_deref(), requests, &field)?;
        }
        Ok(())
    }

    /// What is wrong with it would show only when devices are prepared, after they were waited for.
    pub(super) fn config(
        &self,
        config: &[DeviceClaimConfiguration],
        requests: &[DeviceRequest],
        driver: &DriverName,
    ) -> Result<(), Error> {
        for (index, config) in config.iter().enumerate() {
            let field = format!("spec.devices.config[{index}]");
            self.mentioned(config.requests.as_deref(), requests, &field)?;
            if let Some(opaque) = config.opaque.as_ref().filter(|opaque| opaque.driver == driver.as_str()) {
                let parsed = Parameters::parse(&opaque.parameters.0);
                parsed.map_err(|error| self.wrong(&format!("{field}.opaque"), error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Requests that others speak of; alternatives behind the request that they are for.
    fn mentioned(
        &self,
        mentioned: Option<&[String]>,
        requests: &[DeviceRequest],
        field: &str,
    ) -> Result<(), Error> {
        let alternatives = |request: &DeviceRequest| -> Vec<String> {
            let alternatives = request.first_available.iter().flatten();
            alternatives.map(|one| format!("{}/{}", request.name, one.name)).collect()
        };
        let known: Vec<String> = requests
            .iter()
            .flat_map(|request| [request.name.clone()].into_iter().chain(alternatives(request)))
            .collect();
        for (index, name) in mentioned.unwrap_or_default().iter().enumerate() {
            if !known.contains(name) {
                let reason = format!("there is no request {name:?}; there are: {}", known.join(", "));
                return Err(self.wrong(&format!("{field}.requests[{index}]"), reason));
            }
        }
        Ok(())
    }

    fn name(&self, names: &mut BTreeSet<String>, name: &str, field: &str) -> Result<(), Error> {
        let checked = name.parse::<RequestName>();
        checked.map_err(|error| self.wrong(&format!("{field}.name"), error.to_string()))?;
        let is_new = names.insert(name.to_owned());
        is_new
            .then_some(())
            .ok_or_else(|| self.wrong(&format!("{field}.name"), format!("{name:?} is there already")))
    }

    fn want(&self, want: Want<'_>, field: &str) -> Result<(), Error> {
        let Want { class, mode, count, selectors, tolerations } = want;
        if class.is_empty() {
            return Err(self.wrong(&format!("{field}.deviceClassName"), "a class is needed"));
        }
        let mode = mode.get_or_insert_with(|| String::from("ExactCount"));
        match mode.as_str() {
            "ExactCount" => {
                if *count.get_or_insert(1) < 1 {
                    return Err(self.wrong(&format!("{field}.count"), "it must be at least 1"));
                }
            }
            "All" if count.is_some() => {
                return Err(self.wrong(&format!("{field}.count"), "there is none with allocationMode All"));
            }
            "All" => {}
            other => {
                let reason = format!("{other:?} is not known; allowed: ExactCount, All");
                return Err(self.wrong(&format!("{field}.allocationMode"), reason));
            }
        }
        for toleration in tolerations.iter_mut().flatten() {
            toleration.operator.get_or_insert_with(|| String::from("Equal"));
        }
        for (index, selector) in selectors.unwrap_or_default().iter().enumerate() {
            let field = format!("{field}.selectors[{index}]");
            let Some(CELDeviceSelector { expression }) = &selector.cel else {
                return Err(self.wrong(&field, "there must be a cel.expression"));
            };
            let compiled = cel::compile(expression, expressions());
            compiled.map_err(|source| Error::Expression { claim: self.claim.to_owned(), field, source })?;
        }
        Ok(())
    }
}

/// What new expressions may use.
fn expressions() -> cel::Features {
    let features = crate::allocate::Features::default_of(RELEASE);
    cel::Features {
        consumable_capacity: features.consumable_capacity,
        list_types: features.list_type_attributes,
        version: cel::Version::V1_37,
        environment: cel::Environment::New,
    }
}

/// What a request and an alternative have in common.
struct Want<'a> {
    class: &'a str,
    mode: &'a mut Option<String>,
    count: &'a mut Option<i64>,
    selectors: Option<&'a [DeviceSelector]>,
    tolerations: &'a mut Option<Vec<DeviceToleration>>,
}

macro_rules! want {
    ($kind:ty) => {
        impl<'a> From<&'a mut $kind> for Want<'a> {
            fn from(request: &'a mut $kind) -> Self {
                Self {
                    class: &request.device_class_name,
                    mode: &mut request.allocation_mode,
                    count: &mut request.count,
                    selectors: request.selectors.as_deref(),
                    tolerations: &mut request.tolerations,
                }
            }
        }
    };
}

want!(ExactDeviceRequest);
want!(DeviceSubRequest);
