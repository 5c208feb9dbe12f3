//! The planner: from what was measured of links and devices to the schedule of every call.
//!
//! ```text
//! Topology      what `unisono probe` has measured, as a file
//!   Model       the same as numbers: ports, links, folds
//!     replay    how long one call takes by one schedule
//!       Table   the fastest for every collective and size
//! Selection     what somebody chose instead, as a line of text
//! ```
//!
//! Everything is a pure function of a topology that all ranks have agreed on. Floating point is
//! used with `+ - * /` and comparisons only, which IEEE 754 defines to the last bit, so all ranks
//! compute the same tables. A plan decides how long a call takes, never what comes out of it.

mod model;
mod replay;
mod selection;
mod size;
mod table;
pub mod topology;

pub use model::{Model, Port, Wire};
pub use replay::{Question, replay};
pub use selection::{Pick, Rule, Selection, SelectionError, nodes_of};
pub use size::{bytes, shown};
pub use table::{Candidate, Cut, Forecast, Limit, Row, Table, candidates, fastest_cut, forecast};
pub use topology::{Link, LinkKind, Member, Timing, Topology, TopologyError, label};
