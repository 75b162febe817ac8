//! Decides which files the image has and how they are packed.
//!
//! The only layer holds the program and its SBOM. No shell, no C library, no certificates (the API server's CA comes with the service
//! account), no account files (the user is a number). Never: a time, owner or order that depends on who packs; the same files must
//! give the same bytes.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder};

/// A file of the image.
pub struct File<'a> {
    /// Its path, without the slash in front.
    pub path: &'a str,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub content: &'a [u8],
}

/// The tar of `files`, in the order of their paths, with the directories that they need.
pub fn pack(files: &[File<'_>], modified: u64) -> io::Result<Vec<u8>> {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by_key(|file| file.path);
    let mut tar = tar::Builder::new(vec![]);
    let mut there: Vec<String> = vec![];
    for file in files {
        for directory in directories(file.path) {
            if !there.contains(&directory) {
                append(&mut tar, &directory, tar::EntryType::Directory, 0o755, &[], modified)?;
                there.push(directory);
            }
        }
        append(&mut tar, file.path, tar::EntryType::Regular, file.mode, file.content, modified)?;
    }
    tar.into_inner()
}

/// The directories above a path, outermost first, each with a slash behind.
fn directories(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(at, _)| path[..=at].to_owned()).collect()
}

/// Appends an entry that belongs to root and was modified at `modified`.
pub fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    content: &[u8],
    modified: u64,
) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(modified);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, path, content)
}

/// Compressed, with nothing in the header that says when or where.
pub fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(vec![], Compression::best());
    gzip.write_all(bytes)?;
    gzip.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn file<'a>(path: &'a str, content: &'a [u8]) -> File<'a> {
        File { path, mode: 0o644, content }
    }

    #[test]
    fn the_order_in_which_files_are_given_changes_nothing() {
        let one = pack(&[file("b", b"2"), file("a/c", b"1")], 5).expect("packed");
        let other = pack(&[file("a/c", b"1"), file("b", b"2")], 5).expect("packed");
        assert_eq!(one, other);
    }

    #[test]
    fn every_entry_is_roots_has_its_time_and_comes_after_its_directory() {
        let bytes =
            pack(&[file("usr/share/x", b"1"), File { path: "p", mode: 0o755, content: b"22" }], 7).expect("packed");
        let mut tar = tar::Archive::new(&bytes[..]);
        let entries: Vec<_> = tar
            .entries()
            .expect("a tar")
            .map(|entry| {
                let entry = entry.expect("an entry");
                let header = entry.header();
                let owner = (header.uid().expect("uid"), header.gid().expect("gid"), header.mtime().expect("time"));
                assert_eq!(owner, (0, 0, 7));
                (entry.path().expect("path").display().to_string(), header.mode().expect("mode"), entry.size())
            })
            .collect();
        let wanted = [("p", 0o755, 2), ("usr/", 0o755, 0), ("usr/share/", 0o755, 0), ("usr/share/x", 0o644, 1)];
        assert_eq!(entries, wanted.map(|(path, mode, size)| (path.to_owned(), mode, size)));
    }

    #[test]
    fn compressed_bytes_say_neither_when_nor_where_and_come_back() {
        let bytes = compress(b"hello hello hello").expect("compressed");
        assert_eq!(bytes[4..8], [0; 4], "the time");
        assert_eq!(bytes[9], 255, "the system");
        let mut back = vec![];
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut back).expect("decompressed");
        assert_eq!(back, b"hello hello hello");
    }
}
