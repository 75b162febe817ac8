//! Turns PostgreSQL's archives into packs, as they arrive.
//!
//! The archives of tablespaces become directories below `pg_tblspc`, as they are in a data directory. Nothing is kept: what arrives goes on to
//! the compressors at once. Never: a backup called whole without the file that PostgreSQL sends last.

use super::header::{self, BLOCK, Entry, Inside, Kind};
use super::objects::Objects;
use super::pack::{Cutter, entry_of};
use super::protocol::Archive;
use super::tar::{Event, Reader, TarError};
use super::{BaseError, Progress};
use crate::layout::{BackupId, MANIFEST};
use crate::record::Object;
use tokio::sync::watch;

/// Without these, PostgreSQL starts from no backup. It sends the first first and the last last.
const NEEDED: [&str; 2] = ["backup_label", "global/pg_control"];
/// After how much it is said how far we are.
const REPORT: u64 = 1 << 20;

/// A file that is being packed.
struct File {
    whole: Entry,
    packed: u64,
    /// Of the piece that is being written: its size, and what is missing of it.
    piece: u64,
    left: u64,
}

/// A pack that is being written.
struct Pack {
    number: usize,
    bytes: u64,
    is_open: bool,
}

/// Everything of a backup that is in the store.
#[derive(Debug)]
pub(super) struct Packed {
    pub packs: Vec<Object>,
    pub manifest: Object,
    pub bytes: u64,
}

/// Packs archives.
pub(super) struct Packing<'a> {
    id: BackupId,
    objects: Objects<'a>,
    progress: &'a watch::Sender<Progress>,
    cutter: Cutter,
    reader: Option<Reader>,
    below: Option<Inside>,
    file: Option<File>,
    pack: Pack,
    missing: Vec<&'static str>,
    bytes: u64,
    reported: u64,
    manifest: u64,
}

impl<'a> Packing<'a> {
    pub(super) fn new(
        id: BackupId,
        pack_bytes: u64,
        objects: Objects<'a>,
        progress: &'a watch::Sender<Progress>,
    ) -> Self {
        Self {
            id,
            objects,
            progress,
            cutter: Cutter::new(pack_bytes),
            reader: None,
            below: None,
            file: None,
            pack: Pack { number: 0, bytes: 0, is_open: false },
            missing: NEEDED.to_vec(),
            bytes: 0,
            reported: 0,
            manifest: 0,
        }
    }

    /// An archive begins.
    pub(super) fn archive(&mut self, archive: Archive) -> Result<(), BaseError> {
        self.end_of_archive()?;
        self.reader = Some(Reader::default());
        self.below = match archive {
            Archive::Main => None,
            Archive::Tablespace(oid) => {
                Some(Inside::of(format!("pg_tblspc/{oid}").as_bytes()).map_err(TarError::from)?)
            }
        };
        Ok(())
    }

    /// A piece of the archive.
    pub(super) async fn data(&mut self, mut data: &[u8]) -> Result<(), BaseError> {
        let Some(mut reader) = self.reader.take() else { return Err(BaseError::Stream("data before an archive")) };
        while let Some(event) = reader.next(&mut data)? {
            match event {
                Event::Entry(entry) => self.entry(entry).await?,
                Event::Data(piece) => self.content(piece).await?,
                Event::End => self.file = None,
            }
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// All archives were there, and the manifest begins.
    pub(super) async fn end_of_archives(&mut self) -> Result<(), BaseError> {
        self.end_of_archive()?;
        if let Some(missing) = self.missing.first() {
            return Err(BaseError::Incomplete(missing));
        }
        self.end_of_pack().await
    }

    /// A piece of the manifest.
    pub(super) async fn manifest(&mut self, data: &[u8]) -> Result<(), BaseError> {
        self.manifest += data.len() as u64;
        self.objects.write(data).await
    }

    /// Waits until everything is in the store. It stays there if [`Packing::keep`] is called before this is dropped.
    pub(super) async fn finish(&mut self) -> Result<Packed, BaseError> {
        if self.manifest == 0 {
            return Err(BaseError::Incomplete("backup_manifest"));
        }
        self.objects.end(self.id.key(MANIFEST), self.manifest).await?;
        let mut packs = self.objects.finish().await?;
        let manifest = packs.pop().ok_or(BaseError::Incomplete("backup_manifest"))?;
        self.report();
        Ok(Packed { packs, manifest, bytes: self.bytes })
    }

    pub(super) fn keep(&mut self) {
        self.objects.keep();
    }

    fn end_of_archive(&mut self) -> Result<(), BaseError> {
        self.reader.take().map_or(Ok(()), |reader| Ok(reader.finish()?))
    }

    async fn entry(&mut self, entry: Entry) -> Result<(), BaseError> {
        let path = match &self.below {
            Some(directory) => entry.path.below(directory),
            None => entry.path.clone(),
        };
        // Tablespaces are in a file of their own, and PostgreSQL leaves out whatever else is a link.
        if let Kind::Link { .. } = entry.kind {
            return Err(BaseError::Link(path));
        }
        self.missing.retain(|needed| path.as_bytes() != needed.as_bytes());
        self.file = Some(File { whole: Entry { path, ..entry }, packed: 0, piece: 0, left: 0 });
        self.begin_piece().await
    }

    async fn begin_piece(&mut self) -> Result<(), BaseError> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let cut = self.cutter.next(file.whole.size, file.packed);
        if cut.new_pack {
            self.end_of_pack().await?;
            self.pack.is_open = true;
        }
        let entry = entry_of(&file.whole, &cut.bytes).map_err(TarError::from)?;
        self.objects.write(&header::write(&entry)).await?;
        (file.piece, file.left) = (entry.size, entry.size);
        self.file = Some(file);
        Ok(())
    }

    async fn content(&mut self, mut data: &[u8]) -> Result<(), BaseError> {
        while !data.is_empty() {
            if self.file.as_ref().is_some_and(|file| file.left == 0) {
                self.begin_piece().await?;
            }
            let Some(file) = &mut self.file else { return Err(BaseError::Stream("content of no file")) };
            let (piece, rest) = data.split_at(data.len().min(usize::try_from(file.left).unwrap_or(usize::MAX)));
            data = rest;
            file.packed += piece.len() as u64;
            file.left -= piece.len() as u64;
            let padding = if file.left == 0 { file.piece.next_multiple_of(BLOCK as u64) - file.piece } else { 0 };
            self.pack.bytes += piece.len() as u64;
            self.bytes += piece.len() as u64;
            self.objects.write(piece).await?;
            // Less than a block.
            self.objects.write(&[0; BLOCK][..usize::try_from(padding).unwrap_or(0)]).await?;
        }
        if self.bytes - self.reported >= REPORT {
            self.report();
        }
        Ok(())
    }

    async fn end_of_pack(&mut self) -> Result<(), BaseError> {
        if !self.pack.is_open {
            return Ok(());
        }
        self.objects.write(&[0; 2 * BLOCK]).await?;
        self.objects.end(self.id.pack(self.pack.number), self.pack.bytes).await?;
        self.pack = Pack { number: self.pack.number + 1, bytes: 0, is_open: false };
        Ok(())
    }

    fn report(&mut self) {
        self.reported = self.bytes;
        self.progress.send_modify(|progress| {
            progress.done = self.bytes;
            // The estimate was made before anything was read, and the database may have grown since.
            progress.total = progress.total.max(self.bytes);
        });
    }
}
