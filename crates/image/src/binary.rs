//! Decides whether a program can run in an empty image, and for which architecture it is, from its ELF header.
//!
//! Never: an image whose program asks for a loader that isn't there. It would fail on a node with "no such file", which says nothing.

/// What keeps a program out of the image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBinary {
    /// Not a 64-bit little-endian ELF file.
    #[error("it is no 64-bit little-endian ELF program")]
    NotElf,
    /// A machine that we don't ship for.
    #[error("it is for the machine with ELF number {0}; images are made for x86-64 (62) and AArch64 (183)")]
    Machine(u16),
    /// It needs a dynamic loader.
    #[error("it is linked dynamically, and an empty image has no loader: build it with hack/build")]
    Dynamic,
}

/// The architecture, as images spell it.
pub fn architecture(program: &[u8]) -> Result<&'static str, BadBinary> {
    let header = program.get(..64).ok_or(BadBinary::NotElf)?;
    // The magic number, then "64 bits" and "little-endian".
    if header[..6] != [0x7f, b'E', b'L', b'F', 2, 1] {
        return Err(BadBinary::NotElf);
    }
    if segments(program).ok_or(BadBinary::NotElf)?.contains(&INTERPRETER) {
        return Err(BadBinary::Dynamic);
    }
    match half(program, 18).ok_or(BadBinary::NotElf)? {
        62 => Ok("amd64"),
        183 => Ok("arm64"),
        other => Err(BadBinary::Machine(other)),
    }
}

/// The type of the segment that names the dynamic loader.
const INTERPRETER: u32 = 3;

/// The types of all segments.
fn segments(program: &[u8]) -> Option<Vec<u32>> {
    let offset = usize::try_from(u64::from_le_bytes(program.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(half(program, 54)?), usize::from(half(program, 56)?));
    (0..count)
        .map(|number| {
            let at = offset.checked_add(number * size)?;
            Some(u32::from_le_bytes(program.get(at..at.checked_add(4)?)?.try_into().ok()?))
        })
        .collect()
}

fn half(program: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(program.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The header of a program for `machine` with one segment of each type in `types`.
    pub(crate) fn elf(machine: u16, types: &[u32]) -> Vec<u8> {
        let mut program = vec![0; 64];
        program[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        program[18..20].copy_from_slice(&machine.to_le_bytes());
        program[32..40].copy_from_slice(&64u64.to_le_bytes());
        program[54..56].copy_from_slice(&56u16.to_le_bytes());
        program[56..58].copy_from_slice(&u16::try_from(types.len()).expect("few").to_le_bytes());
        for kind in types {
            program.extend(kind.to_le_bytes());
            program.extend([0; 52]);
        }
        program
    }

    #[test]
    fn static_programs_of_both_architectures_are_taken() {
        assert_eq!(architecture(&elf(62, &[1, 2])), Ok("amd64"));
        assert_eq!(architecture(&elf(183, &[1])), Ok("arm64"));
    }

    #[test]
    fn a_program_that_asks_for_a_loader_is_refused() {
        assert_eq!(architecture(&elf(62, &[6, INTERPRETER, 1])), Err(BadBinary::Dynamic));
        let own = std::fs::read(std::env::current_exe().expect("this test")).expect("readable");
        assert_eq!(architecture(&own), Err(BadBinary::Dynamic), "tests are linked dynamically");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert_eq!(architecture(b"#!/bin/sh\n"), Err(BadBinary::NotElf));
        assert_eq!(architecture(&[0; 100]), Err(BadBinary::NotElf));
        assert_eq!(architecture(&elf(62, &[1])[..66]), Err(BadBinary::NotElf), "cut off within its segments");
        assert_eq!(architecture(&elf(40, &[1])), Err(BadBinary::Machine(40)));
    }
}
