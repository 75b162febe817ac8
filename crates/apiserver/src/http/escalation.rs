//! Decides whether somebody may hand out a permission: only who holds it can grant it.
//!
//! From: the rules a role would have (or those of the role that a binding names) and the rules that its author holds. Both are
//! broken into single permissions, so that two rules of the author together can cover one of the role. Never: a role whose author
//! could gain by it what they did not have (`escalate` on roles and `bind` on the referenced role are the two declared ways round).

use super::rbac::{Rule, has, url_matches};
use super::user::User;

/// The permissions in `wanted` that nothing in `held` covers; empty when the grant is in order.
pub fn not_held(held: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(single_permissions).filter(|one| !held.iter().any(|rule| covers(rule, one))).collect()
}

/// The message of a refused grant, as a kube-apiserver words it.
pub fn refusal(user: &User, missing: &[Rule]) -> String {
    let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    let rules: Vec<String> = missing.iter().map(describe).collect();
    format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        rules.join("\n")
    )
}

fn single_permissions(rule: &Rule) -> Vec<Rule> {
    let mut all = Vec::new();
    for verb in &rule.verbs {
        for url in &rule.non_resource_urls {
            all.push(Rule { verbs: vec![verb.clone()], non_resource_urls: vec![url.clone()], ..Rule::default() });
        }
        for (group, resource) in
            rule.api_groups.iter().flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)))
        {
            let one = Rule {
                verbs: vec![verb.clone()],
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                ..Rule::default()
            };
            if rule.resource_names.is_empty() {
                all.push(one.clone());
            }
            all.extend(
                rule.resource_names.iter().map(|name| Rule { resource_names: vec![name.clone()], ..one.clone() }),
            );
        }
    }
    all
}

/// Whether a rule covers a single permission.
fn covers(rule: &Rule, one: &Rule) -> bool {
    if !one.verbs.iter().all(|verb| has(&rule.verbs, verb)) {
        return false;
    }
    if let [url] = one.non_resource_urls.as_slice() {
        return rule.non_resource_urls.iter().any(|pattern| pattern == url || url_matches(pattern, url));
    }
    one.api_groups.iter().all(|group| has(&rule.api_groups, group))
        && one.resources.iter().all(|resource| covers_resource(rule, resource))
        && (rule.resource_names.is_empty()
            || (!one.resource_names.is_empty()
                && one.resource_names.iter().all(|name| rule.resource_names.contains(name))))
}

fn covers_resource(rule: &Rule, resource: &str) -> bool {
    rule.resources.iter().any(|held| held == resource)
        || match resource.split_once('/') {
            Some((main, sub)) => rule.has_resource(main, Some(sub)),
            None => rule.has_resource(resource, None),
        }
}

fn describe(rule: &Rule) -> String {
    let list = |values: &[String]| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" ");
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("Verbs", &rule.verbs),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:[{}]", list(values)))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let own = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        Rule {
            verbs: own(verbs),
            api_groups: own(&[""]),
            resources: own(resources),
            resource_names: own(names),
            ..Rule::default()
        }
    }

    #[test]
    fn two_rules_together_may_cover_one() {
        let (reads, writes) = (rule(&["get"], &["pods"], &[]), rule(&["update"], &["pods"], &[]));
        assert_eq!(not_held(&[&reads, &writes], &[rule(&["get", "update"], &["pods"], &[])]), []);
    }

    #[test]
    fn holding_one_object_is_not_holding_all() {
        let one = rule(&["get"], &["secrets"], &["mine"]);
        assert_eq!(not_held(&[&one], &[rule(&["get"], &["secrets"], &["mine"])]), []);
        assert_eq!(not_held(&[&one], &[rule(&["get"], &["secrets"], &[])]).len(), 1);
    }

    #[test]
    fn a_subresource_is_held_by_name_or_by_star() {
        let wanted = [rule(&["patch"], &["pods/status"], &[])];
        assert_eq!(not_held(&[&rule(&["patch"], &["pods"], &[])], &wanted).len(), 1);
        assert_eq!(not_held(&[&rule(&["*"], &["*"], &[])], &wanted), []);
        assert_eq!(not_held(&[&rule(&["patch"], &["*/status"], &[])], &wanted), []);
    }

    #[test]
    fn the_refusal_names_the_user_and_what_is_missing() {
        let message = refusal(&User::new("bob", []), &[rule(&["get"], &["pods"], &[])]);
        assert!(message.contains(r#"user "bob" (groups=["system:authenticated"])"#), "{message}");
        assert!(message.ends_with(r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#), "{message}");
    }
}
