//! Which nodes something can be reached from.

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::Placement;

/// Whether a node is one of those. An error says why a selector means nothing.
pub(super) fn matches(node: &Node, placement: &Placement<'_>) -> Result<bool, String> {
    match placement {
        Placement { node_name: Some(name), .. } => Ok(node.metadata.name.as_deref() == Some(name)),
        Placement { all_nodes: true, .. } => Ok(true),
        Placement { selector: Some(selector), .. } => selects(selector, node),
        _ => Ok(false),
    }
}

fn selects(selector: &NodeSelector, node: &Node) -> Result<bool, String> {
    let terms: Vec<_> =
        selector.node_selector_terms.iter().enumerate().filter(|(_, term)| !is_empty(term)).collect();
    let flaws: Vec<_> = terms.iter().flat_map(|(index, term)| flaws(*index, term)).collect();
    let reason = match flaws.as_slice() {
        [] => return Ok(terms.iter().any(|(_, term)| term_selects(term, node))),
        [flaw] => flaw.clone(),
        flaws => format!("[{}]", flaws.join(", ")),
    };
    Err(format!("failed to parse node selector {}: {reason}", shown(selector)))
}

/// A selector as the scheduler shows it.
fn shown(selector: &NodeSelector) -> String {
    let requirement = |requirement: &NodeSelectorRequirement| {
        let NodeSelectorRequirement { key, operator, .. } = requirement;
        let values = values(requirement).join(" ");
        format!("NodeSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let list = |requirements: &[NodeSelectorRequirement]| -> String {
        requirements.iter().map(requirement).collect()
    };
    let term = |term: &NodeSelectorTerm| {
        format!(
            "NodeSelectorTerm{{MatchExpressions:[]NodeSelectorRequirement{{{}}},MatchFields:[]NodeSelectorRequirement{{{}}},}},",
            list(expressions(term)),
            list(fields(term))
        )
    };
    let terms: String = selector.node_selector_terms.iter().map(term).collect();
    format!("&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}")
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    expressions(term).is_empty() && fields(term).is_empty()
}

fn expressions(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_expressions.as_deref().unwrap_or_default()
}

fn fields(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_fields.as_deref().unwrap_or_default()
}

fn values(requirement: &NodeSelectorRequirement) -> &[String] {
    requirement.values.as_deref().unwrap_or_default()
}

/// Why a term means nothing, with the place of each flaw.
fn flaws(index: usize, term: &NodeSelectorTerm) -> Vec<String> {
    let expressions = expressions(term).iter().enumerate().filter_map(|(at, requirement)| {
        let path = format!("nodeSelectorTerms[{index}].matchExpressions[{at}]");
        expression_flaw(requirement).map(|flaw| format!("{path}.{flaw}"))
    });
    let fields = fields(term).iter().enumerate().filter_map(|(at, requirement)| {
        let path = format!("nodeSelectorTerms[{index}].matchFields[{at}]");
        field_flaw(requirement).map(|flaw| format!("{path}.{flaw}"))
    });
    expressions.chain(fields).collect()
}

fn expression_flaw(requirement: &NodeSelectorRequirement) -> Option<String> {
    let values = values(requirement);
    let wrong = |reason: &str| Some(format!("values: Invalid value: {}: {reason}", quoted_list(values)));
    match (requirement.operator.as_str(), values) {
        ("In" | "NotIn", []) => wrong("for 'in', 'notin' operators, values set can't be empty"),
        ("Exists" | "DoesNotExist", [_, ..]) => {
            wrong("values set must be empty for exists and does not exist")
        }
        ("Gt" | "Lt", [value]) => value.parse::<i64>().is_err().then(|| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        }),
        ("Gt" | "Lt", _) => wrong("for 'Gt', 'Lt' operators, exactly one value is required"),
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => None,
        (other, _) => Some(unsupported(other, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])),
    }
}

fn field_flaw(requirement: &NodeSelectorRequirement) -> Option<String> {
    match (requirement.operator.as_str(), values(requirement)) {
        ("In" | "NotIn", [_]) => None,
        ("In" | "NotIn", values) => {
            Some(format!("values: Invalid value: {}: must have one element", quoted_list(values)))
        }
        (other, _) => Some(unsupported(other, &["In", "NotIn"])),
    }
}

fn quoted_list(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(","))
}

fn unsupported(operator: &str, supported: &[&str]) -> String {
    let supported: Vec<_> = supported.iter().map(|name| format!("{name:?}")).collect();
    format!("operator: Unsupported value: {operator:?}: supported values: {}", supported.join(", "))
}

fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let field = |key: &str| if key == "metadata.name" { name } else { "" };
    expressions(term).iter().all(|requirement| is_met(requirement, label(&requirement.key)))
        // A node without a name has no fields, and nothing can be wrong with them.
        && (name.is_empty()
            || fields(term).iter().all(|requirement| is_met(requirement, Some(field(&requirement.key)))))
}

fn is_met(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = values(requirement);
    let is_listed = || value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn is_selected(terms: &Value) -> Result<bool, String> {
        let labels = json!({ "region": "one", "size": "5" });
        let node: Node = from_value(json!({ "metadata": { "name": "node", "labels": labels } })).unwrap();
        let selector: NodeSelector = from_value(json!({ "nodeSelectorTerms": terms })).unwrap();
        matches(&node, &Placement { node_name: None, all_nodes: false, selector: Some(&selector) })
    }

    fn is_required(key: &str, operator: &str, values: &[&str]) -> Result<bool, String> {
        let requirement = json!({ "key": key, "operator": operator, "values": values });
        is_selected(&json!([{ "matchExpressions": [requirement] }]))
    }

    #[test]
    fn requirements_compare_labels() {
        for (key, operator, values, is_met) in [
            ("region", "In", &["one", "two"][..], true),
            ("region", "In", &["two"], false),
            ("region", "NotIn", &["two"], true),
            ("missing", "NotIn", &["two"], true),
            ("region", "Exists", &[], true),
            ("missing", "Exists", &[], false),
            ("missing", "DoesNotExist", &[], true),
            ("size", "Gt", &["4"], true),
            ("size", "Lt", &["5"], false),
            ("region", "Gt", &["4"], false),
        ] {
            assert_eq!(is_required(key, operator, values), Ok(is_met), "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn one_term_is_enough_and_an_empty_one_selects_nothing() {
        let field = |name: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] });
        assert_eq!(is_selected(&json!([])), Ok(false));
        assert_eq!(is_selected(&json!([{}])), Ok(false));
        assert_eq!(is_selected(&json!([field("other"), field("node")])), Ok(true));
    }

    #[test]
    fn a_requirement_that_means_nothing_is_an_error() {
        for (operator, values) in
            [("In", &[][..]), ("Exists", &["x"]), ("Gt", &["x"]), ("Lt", &[]), ("Near", &["x"])]
        {
            assert!(is_required("region", operator, values).is_err(), "{operator} {values:?}");
        }
    }

    #[test]
    fn an_error_shows_the_selector_and_the_place_in_it() {
        let error = is_required("region", "In", &[]).unwrap_err();
        assert_eq!(
            error,
            "failed to parse node selector &NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{NodeSelectorRequirement{Key:region,Operator:In,Values:[],},},MatchFields:[]NodeSelectorRequirement{},},},}: nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        );
    }
}
