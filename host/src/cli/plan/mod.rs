//! `unisono plan`: what the cost model says about every schedule on a group.

mod explain;
mod plot;
mod predict;
mod text;

use super::args::{OrderArg, bytes, dtype, duration, op, rate, topology};
use super::error::Usage;
use super::report::{print, print_json};
use super::staged::Staged;
use clap::ValueEnum;
use predict::{Forecast, Question};
use std::path::PathBuf;
use std::time::Duration;
use unisono::{DType, Kind, PlanOptions, ReduceOp, Topology};
use unisono_core::plan::LinkModel;
use unisono_planner::{Model, nodes_of};

const EXAMPLES: &str = "\
Examples:
  unisono plan -n 4
  unisono plan -n 8 --alpha 5us --bandwidth 10GB/s --reduce-rate 20GB/s --sizes 8,64K,64M
  unisono plan -n 4 --bandwidth 100Gbit/s,100Gbit/s,100Gbit/s,25Gbit/s
  unisono plan -n 4 --aggregators 2 --bandwidth 1GB/s,1GB/s,1GB/s,1GB/s,4GB/s,4GB/s
  unisono plan -n 8 --nodes 2 --order any --kind reduce-scatter --json
  unisono plan -n 8 --nodes 4 --aggregators 1
  unisono plan --topology topology.json --explain --plot times.svg

A message takes alpha plus its bytes over the bandwidth; each rank sends and receives at the same
time, one message after the other, and folds what it receives at its reduce rate. A call is played
chunk by chunk. Lists have one value a member, ranks first, then
aggregators; one value stands for all.";

/// Options of `unisono plan`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// Ranks with data
    #[arg(short = 'n', long, value_name = "N", required_unless_present = "topology")]
    ranks: Option<u16>,
    /// What `unisono probe` has measured, instead of the next options
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["ranks", "aggregators", "nodes", "alpha", "bandwidth",
                                "reduce_rate"])]
    topology: Option<PathBuf>,
    /// Members without data that fold for the others
    #[arg(long, value_name = "K", default_value_t = 0)]
    aggregators: u16,
    /// Nodes of consecutive ranks, for the hierarchical schedule and, with an aggregator, the hub
    #[arg(long, value_name = "NODES")]
    nodes: Option<u16>,
    /// Sizes of the tensor
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes,
          default_value = "8,64K,64M")]
    sizes: Vec<u64>,
    /// Time until an empty message has arrived; one value, or one a member
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', value_parser = duration,
          default_value = "1us")]
    alpha: Vec<Duration>,
    /// Bytes a second each way; one value, or one a member
    #[arg(long, visible_alias = "beta", value_name = "RATE,…", value_delimiter = ',',
          value_parser = rate, default_value = "10GB/s")]
    bandwidth: Vec<f64>,
    /// Bytes a second that a member folds; one value, or one a member [default: no limit]
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', value_parser = rate)]
    reduce_rate: Vec<f64>,
    /// Collective
    #[arg(long, value_enum, default_value = "all-reduce")]
    kind: KindArg,
    /// Element type
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "float", value_parser = dtype)]
    datatype: DType,
    /// Operator
    #[arg(short = 'o', long, value_name = "OP", default_value = "sum", value_parser = op)]
    op: ReduceOp,
    /// Orders of the fold that will do
    #[arg(long, value_enum, default_value = "canonical")]
    order: OrderArg,
    /// Say why: what limits the group, how near the choice comes, what else would nearly do
    #[arg(long)]
    explain: bool,
    /// Draw the time over the size, for all schedules, into this file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print the forecast as JSON
    #[arg(long)]
    json: bool,
}

/// `--kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindArg {
    AllReduce,
    ReduceScatter,
    AllGather,
    Reduce,
    Broadcast,
    AllToAll,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::AllReduce => Self::AllReduce,
            KindArg::ReduceScatter => Self::ReduceScatter,
            KindArg::AllGather => Self::AllGather,
            KindArg::Reduce => Self::Reduce,
            KindArg::Broadcast => Self::Broadcast,
            KindArg::AllToAll => Self::AllToAll,
        }
    }
}

/// One value for each member, from a list or from a single value.
fn each<T: Copy>(values: &[T], members: usize, what: &str) -> Result<Vec<T>, Usage> {
    match values {
        [one] => Ok(vec![*one; members]),
        _ if values.len() == members => Ok(values.to_vec()),
        _ => Err(Usage(format!("{what} has {} values for {members} members", values.len()))),
    }
}

impl PlanArgs {
    fn question(&self) -> anyhow::Result<Question> {
        let Self { datatype, op, .. } = *self;
        if !op.supports(datatype) {
            return Err(Usage(format!("{op} works on integers only, not on {datatype}")).into());
        }
        let least = datatype.size() as u64;
        if let Some(size) = self.sizes.iter().find(|&&size| size < least) {
            return Err(Usage(format!("--sizes {size}: one {datatype} has {least} B")).into());
        }
        let (model, options) = match &self.topology {
            Some(path) => measured(&topology(path)?),
            None => self.described()?,
        };
        Ok(Question {
            cut: options.cut(),
            model,
            kind: self.kind.into(),
            dtype: datatype,
            op,
            order: self.order.into(),
        })
    }

    /// The group that the options describe: every member has a port to a network.
    fn described(&self) -> Result<(Model, PlanOptions), Usage> {
        let refuse = |text: String| Err(Usage(text));
        let (ranks, aggregators) = (self.ranks.unwrap_or(0), self.aggregators);
        let members = usize::from(ranks) + usize::from(aggregators);
        let most = unisono::schedule::MEMBERS_MAX;
        if ranks == 0 || members > most {
            return refuse(format!("{ranks} ranks and {aggregators} aggregators: 1 to {most} fit"));
        }
        let alpha = each(&self.alpha, members, "--alpha")?;
        let bandwidth = each(&self.bandwidth, members, "--bandwidth")?;
        let folds = match self.reduce_rate.as_slice() {
            [] => vec![f64::INFINITY; members],
            rates => each(rates, members, "--reduce-rate")?,
        };
        let link = |((alpha, bandwidth), fold): ((Duration, f64), f64)| LinkModel {
            alpha_ns: alpha.as_secs_f64() * 1e9,
            ns_per_byte: 1e9 / bandwidth,
            fold_ns_per_byte: 1e9 / fold,
        };
        let links: Vec<_> = alpha.into_iter().zip(bandwidth).zip(folds).map(link).collect();
        let mut model = Model::ports(ranks, &links);
        if let Some(nodes) = self.nodes {
            match nodes_of(ranks, nodes) {
                Some(nodes) => model = model.with_nodes(nodes),
                None => return refuse(format!("{nodes} nodes for {ranks} ranks")),
            }
        }
        Ok((model, PlanOptions { streams: true, ..PlanOptions::new(ranks) }))
    }
}

/// The group that was measured.
fn measured(topology: &Topology) -> (Model, PlanOptions) {
    let ranks = &topology.members[..usize::from(topology.ranks())];
    let streams = topology.links.iter().any(|link| !link.kind.lends());
    let mixed = ranks.iter().any(|member| member.device != ranks[0].device);
    let options = PlanOptions { streams, mixed, ..PlanOptions::new(topology.ranks()) };
    (Model::new(topology), options)
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let question = args.question()?;
    let forecast = Forecast::new(&question, &args.sizes)?;
    if let Some(path) = &args.plot {
        let mut file = Staged::create(path)?;
        file.write(plot::draw(&question).as_bytes())?;
        file.sync()?;
        file.keep()?;
    }
    if args.json {
        return print_json(&forecast);
    }
    print(&if args.explain { explain::render(&forecast)? } else { text::render(&forecast)? })
}
