//! Keeps replication slots for the other instances, whether this one leads or follows: whoever leads next has what each of them still needs.
//!
//! A leader's slots move with those who use them; it tells the others how far each is, along with its messages. A standby moves its own by
//! that. Never: a slot dropped or moved that is in use ([`slots::changes`] decides).

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::contract::{InstanceConfig, Leader};
use bellwether_core::election::MemberId;
use bellwether_core::instance::slots::{self, Keeps, Place, Slot, SlotOwner};
use bellwether_core::wal::Lsn;
use bellwether_postgres::SlotName;
use bellwether_postgres::sql::Session;

use crate::instance::Instance;
use crate::settings::SettingsError;
use crate::trouble::Trouble;

impl Instance {
    /// The slots of a leader.
    /// Answers whether one is there that nobody should need, and that is in use.
    pub(crate) async fn keep_slots_as_leader(&self, session: &Session) -> Result<bool, Trouble> {
        let (existing, left) = self.keep_slots(session, Place::Leads).await?;
        let from = |slot: &Slot| match slot.keeps {
            Keeps::From(lsn) if slot.owner == SlotOwner::Bellwether => Some((slot.name.clone(), lsn)),
            _ => None,
        };
        let kept: BTreeMap<String, Lsn> = existing.iter().filter_map(from).collect();
        self.log.send_if_modified(|log| {
            let changed = log.told.timeline.is_some() && log.slots != kept;
            if changed {
                log.slots = kept;
            }
            changed
        });
        let mut of = BTreeSet::new();
        for instance in self.inputs.config.everybody() {
            if left.contains(SlotName::of_instance(&instance).map_err(SettingsError::from)?.as_str()) {
                of.insert(instance);
            }
        }
        let unneeded = of.iter().any(|instance| self.inputs.config.is_leaving(instance));
        self.board.report(|report| report.slots = Some(of.into_iter().collect()));
        Ok(unneeded)
    }

    /// The slots of a standby.
    pub(crate) async fn keep_slots_as_standby(
        &self,
        session: &Session,
        leader: (MemberId, &Leader),
    ) -> Result<(), Trouble> {
        let kept = self.others.borrow().get(&leader.0).map(|known| known.slots.clone()).unwrap_or_default();
        let (replayed, redo) = session.replayed_and_redo().await?;
        let slot = SlotName::of_instance(&leader.1.instance).map_err(SettingsError::from)?;
        let place = Place::Follows { leader: slot.as_str(), kept: &kept, replayed, redo };
        self.keep_slots(session, place).await.map(drop)
    }

    /// Makes the slots here what they should be. Answers what was there, and the names of what is.
    async fn keep_slots(&self, session: &Session, place: Place<'_>) -> Result<(Vec<Slot>, BTreeSet<String>), Trouble> {
        let mut wanted = BTreeSet::new();
        for instance in others(&self.inputs.config, &self.environment.instance) {
            wanted.insert(SlotName::of_instance(&instance).map_err(SettingsError::from)?.to_string());
        }
        let existing: Vec<Slot> = session.slots().await?.into_iter().map(as_seen).collect();
        let changes = slots::changes(&wanted, &existing, place);
        for slot in changes.drop.iter().filter_map(|name| SlotName::recognise(name)) {
            session.drop_slot(&slot).await?;
            tracing::info!(%slot, "dropped the replication slot of an instance that left, or one that kept nothing any more");
        }
        for slot in changes.create.iter().filter_map(|name| SlotName::recognise(name)) {
            session.ensure_slot(&slot).await?;
            tracing::info!(%slot, "created a replication slot");
        }
        for (name, to) in &changes.advance {
            if let Some(slot) = SlotName::recognise(name) {
                session.advance_slot(&slot, *to).await?;
            }
        }
        let stays = existing.iter().map(|slot| &slot.name).filter(|name| !changes.drop.contains(name));
        let names = stays.chain(&changes.create).cloned().collect();
        Ok((existing, names))
    }
}

/// The instances that there should be, but this one.
pub(crate) fn others(config: &InstanceConfig, me: &str) -> BTreeSet<String> {
    config.instances.iter().filter(|instance| *instance != me).cloned().collect()
}

fn as_seen(slot: bellwether_postgres::sql::Slot) -> Slot {
    // A logical slot is never ours, whatever its name.
    let ours = slot.physical && SlotName::recognise(&slot.name).is_some();
    let keeps = match slot.restart {
        _ if slot.lost => Keeps::Lost,
        Some(from) => Keeps::From(from),
        None => Keeps::Nothing,
    };
    let owner = if ours { SlotOwner::Bellwether } else { SlotOwner::User };
    Slot { name: slot.name, owner, active: slot.active, keeps }
}
