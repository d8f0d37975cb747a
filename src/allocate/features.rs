//! Feature gates as data.

/// A release of Kubernetes, where its allocator behaves differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 1.36.
    V1_36,
    /// 1.37, from its first patch release on.
    V1_37,
}

/// Which of a release's allocators. The scheduler takes the most settled one that knows all its gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// With everything that is on by default.
    Incubating,
    /// With everything.
    Experimental,
}

/// What is switched on: one for every gate that the allocator looks at.
#[expect(clippy::struct_excessive_bools, reason = "gates are independent of each other")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `DRAAdminAccess`.
    pub admin_access: bool,
    /// `DRADeviceCompatibilityGroups`.
    pub compatibility_groups: bool,
    /// `DRAConsumableCapacity`.
    pub consumable_capacity: bool,
    /// `DRADerivedAttributes`.
    pub derived_attributes: bool,
    /// `DRADeviceBindingConditions` together with `DRAResourceClaimDeviceStatus`.
    pub binding_conditions: bool,
    /// `DRADeviceTaints`.
    pub device_taints: bool,
    /// `DRAFractionalCapacityRange`.
    pub fractional_capacity_range: bool,
    /// `DRAListTypeAttributes`.
    pub list_type_attributes: bool,
    /// `DRAOptionalNodeOperations`.
    pub optional_node_operations: bool,
    /// `DRAPartitionableDevices`.
    pub partitionable_devices: bool,
    /// `DRAPrioritizedList`.
    pub prioritized_list: bool,
}

impl Features {
    /// What a release has on unless told otherwise.
    #[must_use]
    pub fn default_of(release: Release) -> Self {
        Self {
            admin_access: true,
            consumable_capacity: true,
            binding_conditions: true,
            device_taints: true,
            fractional_capacity_range: release >= Release::V1_37,
            partitionable_devices: true,
            prioritized_list: true,
            ..Self::default()
        }
    }

    /// The gates by name.
    pub const GATES: [&'static str; 11] = [
        "DRAAdminAccess",
        "DRADeviceCompatibilityGroups",
        "DRAConsumableCapacity",
        "DRADerivedAttributes",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAFractionalCapacityRange",
        "DRAListTypeAttributes",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
    ];

    /// Whether a gate is on, if it is one.
    #[must_use]
    pub fn gate(mut self, name: &str) -> Option<bool> {
        self.gate_mut(name).map(|gate| *gate)
    }

    /// A gate by name.
    pub fn gate_mut(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "DRAAdminAccess" => &mut self.admin_access,
            "DRADeviceCompatibilityGroups" => &mut self.compatibility_groups,
            "DRAConsumableCapacity" => &mut self.consumable_capacity,
            "DRADerivedAttributes" => &mut self.derived_attributes,
            "DRADeviceBindingConditions" => &mut self.binding_conditions,
            "DRADeviceTaints" => &mut self.device_taints,
            "DRAFractionalCapacityRange" => &mut self.fractional_capacity_range,
            "DRAListTypeAttributes" => &mut self.list_type_attributes,
            "DRAOptionalNodeOperations" => &mut self.optional_node_operations,
            "DRAPartitionableDevices" => &mut self.partitionable_devices,
            "DRAPrioritizedList" => &mut self.prioritized_list,
            _ => return None,
        })
    }

    /// The allocator that the scheduler would take.
    #[must_use]
    pub fn channel(&self) -> Channel {
        let experimental = self.compatibility_groups
            || self.derived_attributes
            || self.list_type_attributes
            || self.optional_node_operations;
        if experimental { Channel::Experimental } else { Channel::Incubating }
    }
}
