//! Which taints keep a device from a request, and taints that are put on devices from outside.

use k8s_openapi::api::resource::v1::{
    DeviceTaint, DeviceTaintRule, DeviceTaintSelector, DeviceToleration, ResourceSlice,
};

/// Whether a taint keeps a device away. Effects that are not known keep nothing away.
pub(super) fn prevent(taints: &[DeviceTaint], tolerations: &[DeviceToleration]) -> bool {
    preventing(taints, tolerations).is_some()
}

/// The first taint that keeps a device away.
pub(super) fn preventing<'t>(
    taints: &'t [DeviceTaint],
    tolerations: &[DeviceToleration],
) -> Option<&'t DeviceTaint> {
    taints.iter().find(|taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let is_any_or = |wanted: &Option<String>, given: &str| {
        let wanted = wanted.as_deref().unwrap_or_default();
        wanted.is_empty() || wanted == given
    };
    is_any_or(&toleration.effect, &taint.effect)
        && is_any_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => {
                toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
            }
            "Exists" => true,
            _ => false,
        }
}

/// Puts the taints of rules onto the devices that they are about. A rule without a selector is about none.
pub fn tainted(slices: &mut [ResourceSlice], rules: &[DeviceTaintRule]) {
    for slice in slices {
        let (driver, pool) = (&slice.spec.driver, &slice.spec.pool.name);
        for rule in rules {
            let Some(selector) = &rule.spec.device_selector else { continue };
            for device in slice.spec.devices.iter_mut().flatten() {
                if selects(selector, driver, pool, &device.name) {
                    device.taints.get_or_insert_default().push(rule.spec.taint.clone());
                }
            }
        }
    }
}

fn selects(selector: &DeviceTaintSelector, driver: &str, pool: &str, device: &str) -> bool {
    let is_any_or = |wanted: &Option<String>, given: &str| wanted.as_deref().is_none_or(|name| name == given);
    is_any_or(&selector.driver, driver)
        && is_any_or(&selector.pool, pool)
        && is_any_or(&selector.device, device)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn are_prevented(taints: Value, tolerations: Value) -> bool {
        let taints: Vec<DeviceTaint> = from_value(taints).unwrap();
        let tolerations: Vec<DeviceToleration> = from_value(tolerations).unwrap();
        prevent(&taints, &tolerations)
    }

    #[test]
    fn only_taints_with_an_effect_have_to_be_tolerated() {
        let taint = |effect: &str| json!([{ "key": "k", "value": "v", "effect": effect }]);
        assert!(are_prevented(taint("NoSchedule"), json!([])));
        assert!(are_prevented(taint("NoExecute"), json!([])));
        assert!(!are_prevented(taint("None"), json!([])));
        for (toleration, is_enough) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "k", "value": "v" }), true),
            (json!({ "key": "k", "operator": "Equal", "value": "w" }), false),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({ "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "operator": "Unknown" }), false),
        ] {
            let is_prevented = are_prevented(taint("NoSchedule"), json!([toleration]));
            assert_eq!(is_prevented, !is_enough, "{toleration}");
        }
    }

    #[test]
    fn a_rule_taints_the_devices_that_it_selects() {
        let pool = json!({ "name": "pool", "generation": 1, "resourceSliceCount": 1 });
        let devices = json!([{ "name": "one" }, { "name": "two" }]);
        let spec = json!({ "driver": "driver", "pool": pool, "devices": devices });
        let mut slices: Vec<ResourceSlice> =
            from_value(json!([{ "metadata": { "name": "slice" }, "spec": spec }])).unwrap();
        let rule = |selector: Option<Value>, key: &str| {
            let taint = json!({ "key": key, "effect": "NoSchedule" });
            json!({ "metadata": {}, "spec": { "deviceSelector": selector, "taint": taint } })
        };
        let rules: Vec<DeviceTaintRule> = from_value(json!([
            rule(None, "none"),
            rule(Some(json!({})), "all"),
            rule(Some(json!({ "driver": "driver", "pool": "pool", "device": "two" })), "two"),
            rule(Some(json!({ "driver": "other" })), "other"),
        ]))
        .unwrap();
        tainted(&mut slices, &rules);
        let devices = slices[0].spec.devices.as_ref().unwrap();
        let keys = |device: &k8s_openapi::api::resource::v1::Device| -> Vec<String> {
            device.taints.iter().flatten().map(|taint| taint.key.clone()).collect()
        };
        assert_eq!(devices.iter().map(keys).collect::<Vec<_>>(), [vec!["all"], vec!["all", "two"]]);
    }
}
