//! Schedules in messages: the algorithm and its tables, checked when they come in.

use super::{Aggregators, MEMBERS_MAX, Nodes, Owners, Schedule};
use heapless::Vec;
use serde::{Deserialize, Serialize};

type Table = Vec<u8, MEMBERS_MAX, u8>;

/// A schedule as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Code {
    Ring,
    Direct { ranks: u8, aggregators: u8, table: Table },
    OneShot,
    Binomial,
    DoubleTree,
    HalvingDoubling,
    Star(u8),
    Hierarchical(Table),
}

/// Tables that belong to no schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schedule's tables make no sense")]
pub struct CodeError;

impl From<Schedule> for Code {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Ring => Self::Ring,
            Schedule::Direct(owners) => {
                let mut table = Table::new();
                // As long as the owners' own.
                let _ = table.extend_from_slice(owners.table());
                // Both are numbers below 128.
                let (ranks, aggregators) = (owners.ranks() as u8, owners.aggregators() as u8);
                Self::Direct { ranks, aggregators, table }
            }
            Schedule::OneShot => Self::OneShot,
            Schedule::Binomial => Self::Binomial,
            Schedule::DoubleTree => Self::DoubleTree,
            Schedule::HalvingDoubling => Self::HalvingDoubling,
            Schedule::Star(aggregators) => Self::Star(aggregators.count() as u8),
            Schedule::Hierarchical(nodes) => {
                let mut table = Table::new();
                let _ = table.extend_from_slice(nodes.node_of());
                Self::Hierarchical(table)
            }
        }
    }
}

impl TryFrom<Code> for Schedule {
    type Error = CodeError;

    fn try_from(code: Code) -> Result<Self, CodeError> {
        Ok(match code {
            Code::Ring => Self::Ring,
            Code::Direct { ranks, aggregators, table } => {
                Self::Direct(Owners::from_table(ranks, aggregators, &table).ok_or(CodeError)?)
            }
            Code::OneShot => Self::OneShot,
            Code::Binomial => Self::Binomial,
            Code::DoubleTree => Self::DoubleTree,
            Code::HalvingDoubling => Self::HalvingDoubling,
            Code::Star(count) => Self::Star(Aggregators::new(count.into()).ok_or(CodeError)?),
            Code::Hierarchical(table) => {
                let mut node_of: Vec<u16, MEMBERS_MAX> = Vec::new();
                node_of.extend(table.iter().map(|&node| u16::from(node)));
                Self::Hierarchical(Nodes::new(&node_of).ok_or(CodeError)?)
            }
        })
    }
}
