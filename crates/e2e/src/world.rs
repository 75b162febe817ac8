//! What a scenario gets: the cluster under test, namespaces of its own, an operator that is installed.

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};

use crate::audit::Mark;
use crate::failure::{Failure, Outcome};
use crate::install;
use crate::namespace::{Namespace, PREFIX};
use crate::target::{Home, Target};

/// How the operator is installed right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// The chart with its defaults: what scenarios find unless they change it.
    Chart,
    /// Something else, or nothing: the next scenario that needs the chart gets it installed first.
    Otherwise,
}

/// The world of a scenario.
pub struct World {
    /// The cluster under test.
    pub target: Target,
    /// Chooses what is left to chance.
    pub seed: u64,
    /// The end of the audit log when the run began.
    pub began: Option<Mark>,
    installed: Cell<Installed>,
    made: RefCell<Vec<String>>,
}

impl World {
    /// A world in which nothing of ours runs: what an earlier run left is removed.
    pub fn new(target: Target, seed: u64) -> Outcome<World> {
        let began = match target.home {
            Home::Harness => {
                // A run that was ended in the middle may have left a node that is cut off or frozen.
                harness::fault::undo_all(&target.layout)?;
                Some(Mark::now()?)
            }
            Home::Foreign => None,
        };
        let world = World { target, seed, began, installed: Cell::new(Installed::Otherwise), made: RefCell::default() };
        world.clear()?;
        Ok(world)
    }

    /// Removes namespaces and operators of earlier runs. While an operator runs, because that is when namespaces must end.
    fn clear(&self) -> Outcome {
        let namespaces = self.target.list(["namespaces"])?;
        let names = namespaces.iter().filter_map(|namespace| namespace["metadata"]["name"].as_str());
        for name in names.filter(|name| name.starts_with(PREFIX)) {
            crate::namespace::delete(&self.target, name)?;
        }
        match (self.target.home, install::installed(&self.target)?) {
            (_, false) => Ok(()),
            (Home::Harness, true) => install::remove_any(&self.target),
            (Home::Foreign, true) => Err(Failure::Wrong(format!(
                "an operator is installed in namespace {} already, and somebody may need it: uninstall it first",
                install::NAMESPACE
            ))),
        }
    }

    /// Another's cluster is left as it was found, the definitions and what failed apart.
    pub fn leave(&self) -> Outcome {
        match self.target.home {
            Home::Harness => Ok(()),
            Home::Foreign => install::remove_helm(&self.target),
        }
    }

    /// A namespace of the scenario's own, `e2e-NAME`.
    pub fn namespace(&self, name: &str) -> Outcome<Namespace<'_>> {
        self.labelled_namespace(name, &json!({}))
    }

    /// The same with labels.
    pub fn labelled_namespace(&self, name: &str, labels: &Value) -> Outcome<Namespace<'_>> {
        let namespace = Namespace::create(&self.target, name, labels)?;
        self.made.borrow_mut().push(namespace.name.clone());
        Ok(namespace)
    }

    /// The namespaces that the scenario made.
    pub fn take_made(&self) -> Vec<String> {
        self.made.take()
    }

    /// Sees to it that the chart is installed with its defaults.
    pub fn with_chart(&self) -> Outcome {
        if self.installed.get() != Installed::Chart {
            install::by_helm(&self.target, &self.target.images.operator, &[])?;
            self.installed.set(Installed::Chart);
        }
        Ok(())
    }

    /// The scenario is about to install something else, or to remove what is there.
    pub fn without_chart(&self) {
        self.installed.set(Installed::Otherwise);
    }

    /// A number below `limit`, by the seed: the same in every run with that seed.
    pub fn chance(&self, draw: u64, limit: u64) -> u64 {
        // splitmix64: well mixed from consecutive numbers, which is what seeds and draws are.
        let mut mixed = (self.seed ^ draw.wrapping_mul(0xD1B5_4A32_D192_ED03)).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}
