//! Tensors of the benchmark in memory of the ranks' devices.

use super::run::{Case, GoOn, Memory, lengths};
use unisono::{Error, Member, Tensor};

/// One rank's tensors for one row.
pub struct OnDevice {
    /// Out of place only.
    input: Option<Tensor<u8>>,
    /// Out of place the output, in place both.
    output: Tensor<u8>,
}

impl OnDevice {
    /// As long as the row needs them.
    pub fn new(
        member: &Member,
        case: &Case<'_>,
        in_place: bool,
        go_on: &GoOn<'_>,
    ) -> Result<Self, Error> {
        go_on()?;
        let (input, output, both) = lengths(member, &case.call);
        if in_place {
            return Ok(Self { input: None, output: member.tensor(both)? });
        }
        let input = Some(member.tensor(input)?);
        go_on()?;
        Ok(Self { input, output: member.tensor(output)? })
    }

    /// What the host has.
    pub fn write(&mut self, memory: &Memory, go_on: &GoOn<'_>) -> Result<(), Error> {
        go_on()?;
        if let Some(input) = &mut self.input {
            input.write(&memory.input[..input.len()])?;
            go_on()?;
        }
        self.output.write(&memory.output[..self.output.len()])
    }

    /// The result, for the host.
    pub fn read(&self, memory: &mut Memory) -> Result<(), Error> {
        self.output.read(&mut memory.output[..self.output.len()])
    }

    /// Nothing but the calls.
    pub fn calls(&mut self, member: &mut Member, case: &Case<'_>, times: u32) -> Result<(), Error> {
        for _ in 0..times {
            match &self.input {
                Some(input) => member.apart(&case.call, input, &mut self.output)?,
                None => member.in_place(&case.call, &mut self.output)?,
            }
        }
        Ok(())
    }
}
