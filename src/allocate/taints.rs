//! Which taints keep a device from a request, and taints that are put on devices from outside.

use k8s_openapi::api::resource::v1::{
    DeviceTaint, DeviceTaintRule, DeviceTaintSelector, DeviceToleration, ResourceSlice,
};

/// Whether a taint keeps a device away. Effects that are not known keep nothing away.
pub(super) fn prevent(taints: &[DeviceTaint], tolerations: &[DeviceToleration]) -> bool {
    taints.iter().any(|taint| {
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
