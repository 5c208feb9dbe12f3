//! A topology as matrices.

use super::super::report::{rate, table, time};
use std::fmt::Write;
use unisono::Topology;
use unisono::topology::{Link, LinkKind, Numa};

/// For people.
pub fn render(topology: &Topology, numa: &[Numa]) -> Result<String, std::fmt::Error> {
    let mut text = String::from("link, from the row's member to the column's\n");
    text += &matrix(topology, &|link| link.kind.short().to_owned());
    text += "\ntime of a message without data\n";
    text += &matrix(topology, &|link| time(link.alpha));
    text += "\nrate of large messages\n";
    text += &matrix(topology, &|link| rate(link.rate));
    if topology.links.iter().any(|link| link.message.is_some()) {
        text += "\ntime of both ends that each message takes\n";
        text += &matrix(topology, &|link| link.message.map_or_else(String::new, time));
    }
    text += "\nmembers\n";
    let rows = topology.members.iter().enumerate().map(|(index, member)| {
        vec![
            format!("  {index}"),
            member.host.clone(),
            member.numa.map_or_else(String::new, |node| node.to_string()),
            rate(member.fold),
            rate(member.send),
            rate(member.receive),
            member.both.map_or_else(String::new, rate),
            format!("{}{}", member.device, if member.data { "" } else { " (without data)" }),
        ]
    });
    let header = ["  ", "host", "NUMA", "folds", "sends", "receives", "both", "device"];
    text += &table(&header, rows.collect(), &[2, 3, 4, 5, 6]);
    text.push('\n');
    for kind in LinkKind::ALL {
        if topology.links.iter().any(|link| link.kind == kind) {
            writeln!(text, "{} = {}", kind.short(), kind.about())?;
        }
    }
    for Numa { node, cpus } in numa {
        writeln!(text, "NUMA node {node} of this host: CPUs {cpus}")?;
    }
    Ok(text)
}

/// One cell a link.
fn matrix(topology: &Topology, cell: &dyn Fn(&Link) -> String) -> String {
    let members = 0..topology.members.len() as u16;
    let names = members.clone().map(|member| member.to_string());
    let header: Vec<String> = std::iter::once("  ".to_owned()).chain(names).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let row = |from: u16| {
        let to = |to: u16| match topology.link(from, to) {
            Some(link) => cell(link),
            None => "X".to_owned(),
        };
        std::iter::once(format!("  {from}")).chain(members.clone().map(to)).collect()
    };
    let rows = members.clone().map(row).collect();
    let right: Vec<usize> = (1..=topology.members.len()).collect();
    table(&header, rows, &right)
}
