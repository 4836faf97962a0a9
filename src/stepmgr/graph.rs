//! The dependency graph.
//!
//! A dependency on a pattern goes through a group node between its members and the steps that wait
//! for all of them. A thousand steps after a thousand others then cost two thousand edges, not a
//! million.

use super::def::{After, StepDef, Wanted};
use slotd_parse::suggest;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use wildmatch::WildMatch;

/// An incoming edge: a dependency of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Step(u32, Wanted),
    Group(u32),
}

/// An outgoing edge: a dependent of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Step(u32, Wanted),
    Group(u32),
}

#[derive(Debug, Clone, Default)]
struct Node {
    name: Arc<str>,
    unmet: u32,
    next: Vec<Next>,
    before: Box<[Before]>,
    /// Whether it has ended, and if so, successfully.
    ended: Option<bool>,
}

#[derive(Debug, Clone)]
struct Group {
    wanted: Wanted,
    pattern: Box<str>,
    /// The number of members that have not ended.
    left: u32,
    /// Whether a member ended differently than required.
    is_unsatisfiable: bool,
    dependents: Vec<u32>,
}

/// The dependents affected by the end of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consequences {
    /// Steps that no longer wait for any other step.
    pub unblocked: Vec<u32>,
    /// Steps whose dependencies can no longer be satisfied.
    pub unsatisfiable: Vec<u32>,
}

/// A step that was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The line of its definition.
    pub line: u32,
    pub text: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    names: BTreeMap<Arc<str>, u32>,
    groups: Vec<Group>,
    /// The newest group for each pattern, and the number of steps when it was created.
    known: HashMap<(Wanted, Box<str>), (u32, usize)>,
}

fn is_met(wanted: Wanted, well: bool) -> bool {
    match wanted {
        Wanted::Ok => well,
        Wanted::Any => true,
        Wanted::NotOk => !well,
    }
}

impl Graph {
    /// Returns the step with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// Returns the steps that match a name or pattern, in submission order.
    pub fn matching(&self, pattern: &str) -> Vec<u32> {
        if !pattern.contains(['*', '?']) {
            return self.find(pattern).into_iter().collect();
        }
        let prefix = pattern.split(['*', '?']).next().unwrap_or_default();
        let wild = WildMatch::new(pattern);
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let near =
            self.names.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        let mut found: Vec<u32> =
            near.filter(|(name, _)| wild.matches(name)).map(|(_, step)| *step).collect();
        found.sort_unstable();
        found
    }

    /// Adds steps, all or none, with the next indices.
    ///
    /// # Errors
    /// Fails if a name is taken, a dependency matches no step, or there is a cycle.
    pub fn add(&mut self, defs: &[StepDef]) -> Result<Consequences, Refused> {
        let (nodes, groups) = (self.nodes.len(), self.groups.len());
        let added =
            self.add_names(defs).and_then(|()| self.link(defs, nodes)).and_then(|followed| {
                self.check_cycles(defs, nodes)?;
                Ok(followed)
            });
        if added.is_err() {
            self.undo(nodes, groups);
        }
        added
    }

    fn add_names(&mut self, defs: &[StepDef]) -> Result<(), Refused> {
        for def in defs {
            let step = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            self.nodes.push(Node { name: Arc::clone(&def.name), ..Node::default() });
            if self.names.contains_key(&def.name) {
                let text = format!("duplicate step name {:?}", def.name);
                let hint = "rename one of the steps".to_owned();
                return Err(Refused { line: def.line, text, hint: Some(hint) });
            }
            self.names.insert(Arc::clone(&def.name), step);
        }
        Ok(())
    }

    fn link(&mut self, defs: &[StepDef], first: usize) -> Result<Consequences, Refused> {
        let mut followed = Consequences::default();
        for (def, place) in defs.iter().zip(first..) {
            let step = u32::try_from(place).unwrap_or(u32::MAX);
            let mut before = Vec::with_capacity(def.after.len());
            let mut is_unsatisfiable = false;
            for after in &def.after {
                let one = self.resolve(after, def)?;
                if before.contains(&one) {
                    continue;
                }
                before.push(one);
                match self.wait_for(step, one) {
                    Some(true) => {}
                    Some(false) => is_unsatisfiable = true,
                    None => self.nodes[place].unmet += 1,
                }
            }
            self.nodes[place].before = before.into();
            if is_unsatisfiable {
                followed.unsatisfiable.push(step);
            } else if self.nodes[place].unmet == 0 {
                followed.unblocked.push(step);
            }
        }
        Ok(followed)
    }

    fn resolve(&mut self, after: &After, def: &StepDef) -> Result<Before, Refused> {
        let refuse =
            |text: String, hint: String| Refused { line: def.line, text, hint: Some(hint) };
        if !after.is_pattern() {
            return match self.find(&after.name) {
                Some(step) => Ok(Before::Step(step, after.wanted)),
                None => {
                    let text = format!(
                        "step {:?}: after = {:?}: no step has this name",
                        def.name, after.name
                    );
                    let near = suggest::nearest(&after.name, self.names.keys().map(|name| &**name));
                    Err(refuse(
                        text,
                        near.map_or(
                            "name a step of this file, or one submitted earlier".to_owned(),
                            |near| format!("did you mean {near}?"),
                        ),
                    ))
                }
            };
        }
        let key = (after.wanted, after.name.clone());
        if let Some((group, at)) = self.known.get(&key)
            && *at == self.nodes.len()
        {
            return Ok(Before::Group(*group));
        }
        let members = self.matching(&after.name);
        if members.is_empty() {
            let text = format!(
                "step {:?}: after = {:?}: no step matches this pattern",
                def.name, after.name
            );
            return Err(refuse(
                text,
                "a pattern matches only steps of this file and earlier ones".to_owned(),
            ));
        }
        let number = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let mut group = Group {
            wanted: after.wanted,
            pattern: after.name.clone(),
            left: 0,
            is_unsatisfiable: false,
            dependents: Vec::new(),
        };
        for member in members {
            let node = &mut self.nodes[member as usize];
            match node.ended {
                None => {
                    group.left += 1;
                    node.next.push(Next::Group(number));
                }
                Some(well) => group.is_unsatisfiable |= !is_met(after.wanted, well),
            }
        }
        self.groups.push(group);
        self.known.insert(key, (number, self.nodes.len()));
        Ok(Before::Group(number))
    }

    /// Returns whether a dependency is already satisfied; `None` if the step has to wait.
    fn wait_for(&mut self, step: u32, before: Before) -> Option<bool> {
        match before {
            Before::Step(other, wanted) => {
                let node = &mut self.nodes[other as usize];
                let met = node.ended.map(|well| is_met(wanted, well));
                if met.is_none() {
                    node.next.push(Next::Step(step, wanted));
                }
                met
            }
            Before::Group(group) => {
                let group = &mut self.groups[group as usize];
                if group.is_unsatisfiable {
                    return Some(false);
                }
                if group.left == 0 {
                    return Some(true);
                }
                group.dependents.push(step);
                None
            }
        }
    }

    /// Records the final end of a step.
    pub fn end(&mut self, step: u32, well: bool) -> Consequences {
        let mut followed = Consequences::default();
        let Some(node) = self.nodes.get_mut(step as usize) else { return followed };
        node.ended = Some(well);
        for next in std::mem::take(&mut node.next) {
            match next {
                Next::Step(other, wanted) if is_met(wanted, well) => {
                    self.meet(other, &mut followed)
                }
                Next::Step(other, _) => followed.unsatisfiable.push(other),
                Next::Group(group) => self.end_in_group(group, well, &mut followed),
            }
        }
        followed
    }

    fn end_in_group(&mut self, group: u32, well: bool, followed: &mut Consequences) {
        let group = &mut self.groups[group as usize];
        group.left = group.left.saturating_sub(1);
        group.is_unsatisfiable |= !is_met(group.wanted, well);
        if group.is_unsatisfiable {
            followed.unsatisfiable.append(&mut group.dependents);
        } else if group.left == 0 {
            for other in std::mem::take(&mut group.dependents) {
                self.meet(other, followed);
            }
        }
    }

    fn meet(&mut self, step: u32, followed: &mut Consequences) {
        let node = &mut self.nodes[step as usize];
        node.unmet = node.unmet.saturating_sub(1);
        if node.unmet == 0 {
            followed.unblocked.push(step);
        }
    }

    /// Returns the unsatisfied dependencies of a step, as they were written.
    pub fn waits_for(&self, step: u32) -> Vec<String> {
        let Some(node) = self.nodes.get(step as usize) else { return Vec::new() };
        let text = |before: &Before| match before {
            Before::Step(other, wanted) => {
                let other =
                    self.nodes.get(*other as usize).filter(|other| other.ended.is_none())?;
                Some(format!("{}:{}", wanted.name(), other.name))
            }
            Before::Group(group) => {
                let group = self.groups.get(*group as usize).filter(|group| group.left > 0)?;
                Some(format!("{}:{} ({} left)", group.wanted.name(), group.pattern, group.left))
            }
        };
        node.before.iter().filter_map(text).collect()
    }

    /// Checks that all new steps can end, one after the other, once the old ones have ended.
    fn check_cycles(&self, defs: &[StepDef], first: usize) -> Result<(), Refused> {
        // A single new step can only depend on older steps or on itself.
        if defs.len() < 2 && !self.waits_for_itself(first) {
            return Ok(());
        }
        let mut unmet: Vec<u32> = self.nodes.iter().map(|node| node.unmet).collect();
        let mut left: Vec<u32> = self.groups.iter().map(|group| group.left).collect();
        let mut ended = vec![false; self.nodes.len()];
        let mut queue: VecDeque<usize> =
            (0..self.nodes.len()).filter(|at| *at < first || unmet[*at] == 0).collect();
        while let Some(at) = queue.pop_front() {
            if std::mem::replace(&mut ended[at], true) {
                continue;
            }
            let mut meet = |step: u32| {
                let step = step as usize;
                unmet[step] = unmet[step].saturating_sub(1);
                if unmet[step] == 0 {
                    queue.push_back(step);
                }
            };
            for next in &self.nodes[at].next {
                match next {
                    Next::Step(other, _) => meet(*other),
                    Next::Group(group) => {
                        left[*group as usize] = left[*group as usize].saturating_sub(1);
                        if left[*group as usize] == 0 {
                            self.groups[*group as usize]
                                .dependents
                                .iter()
                                .copied()
                                .for_each(&mut meet);
                        }
                    }
                }
            }
        }
        match (first..self.nodes.len()).find(|at| !ended[*at]) {
            None => Ok(()),
            Some(at) => Err(self.cycle_from(at, &ended, defs, first)),
        }
    }

    fn waits_for_itself(&self, step: usize) -> bool {
        let own = u32::try_from(step).unwrap_or(u32::MAX);
        self.nodes.get(step).is_some_and(|node| {
            node.before.iter().any(|before| match before {
                Before::Step(other, _) => *other == own,
                Before::Group(group) => node.next.contains(&Next::Group(*group)),
            })
        })
    }

    /// Follows dependencies from a step that cannot end until a step repeats.
    fn cycle_from(&self, start: usize, ended: &[bool], defs: &[StepDef], first: usize) -> Refused {
        let mut path = vec![start];
        let cycle = loop {
            let at = path[path.len() - 1];
            let before = self.nodes[at].before.iter().find_map(|before| match before {
                Before::Step(other, _) => Some(*other as usize).filter(|other| !ended[*other]),
                Before::Group(group) => {
                    let is_member = |node: &Node| node.next.contains(&Next::Group(*group));
                    (first..self.nodes.len()).find(|at| !ended[*at] && is_member(&self.nodes[*at]))
                }
            });
            let Some(before) = before else { break path.clone() };
            if let Some(begin) = path.iter().position(|known| *known == before) {
                break [&path[begin..], &[before]].concat();
            }
            path.push(before);
        };
        let names: Vec<&str> = cycle.iter().map(|at| &*self.nodes[*at].name).collect();
        let line =
            cycle.first().and_then(|at| defs.get(at.checked_sub(first)?)).map_or(0, |def| def.line);
        let text = format!("dependency cycle: {}", names.join(" after "));
        Refused { line, text, hint: Some("remove one of these dependencies".to_owned()) }
    }

    fn undo(&mut self, nodes: usize, groups: usize) {
        let is_old = |next: &Next| match next {
            Next::Step(step, _) => (*step as usize) < nodes,
            Next::Group(group) => (*group as usize) < groups,
        };
        self.nodes.truncate(nodes);
        self.groups.truncate(groups);
        self.nodes.iter_mut().for_each(|node| node.next.retain(is_old));
        self.groups
            .iter_mut()
            .for_each(|group| group.dependents.retain(|step| (*step as usize) < nodes));
        self.names.retain(|_, step| (*step as usize) < nodes);
        self.known.retain(|_, (group, _)| (*group as usize) < groups);
    }
}
