//! What is found on a volume, and what may be deleted from it. With databases of a real `initdb`.

mod support;

use std::fs;
use std::path::PathBuf;

use bellwether_agent::volume::{LastCopy, Volume, Work};
use bellwether_core::instance::start::VolumeState;
use bellwether_core::wal::SystemIdentifier;
use support::{Home, postgresql};

/// A volume in a home, and the PostgreSQL to look at it with.
struct Fixture {
    home: Home,
    volume: Volume,
}

impl Fixture {
    fn new() -> Self {
        let home = Home::new();
        let volume = Volume::new(home.path().to_owned(), None, "orders-1");
        Self { home, volume }
    }
    async fn look(&self) -> VolumeState {
        self.volume.inspect(&postgresql()).await
    }
    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
    async fn initialised(&self) -> SystemIdentifier {
        self.volume.begin(Work::Initdb, &self.look().await).unwrap();
        self.home.initdb(&self.volume.scratch());
        self.volume.finish(Work::Initdb, &postgresql(), None).await.unwrap()
    }
}

#[tokio::test]
async fn a_restore_is_for_one_cluster_and_until_it_is_announced_nothing_else_is_done_with_it() {
    let fixture = Fixture::new();
    fixture.volume.begin_restore("this", &VolumeState::Empty).unwrap();
    fixture.home.initdb(&fixture.volume.scratch());
    assert_eq!(fixture.look().await, VolumeState::UnfinishedRestore);
    // Begun again, for a cluster of the same name even.
    fixture.volume.begin_restore("another", &VolumeState::UnfinishedRestore).unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedRestore);
    fixture.home.initdb(&fixture.volume.scratch());
    let system = fixture.volume.finish(Work::Restore, &postgresql(), None).await.unwrap();
    let restored = VolumeState::Restored { system, incarnation: "another".to_owned() };
    assert_eq!(fixture.look().await, restored);
    assert!(fixture.volume.begin_restore("this", &restored).is_err(), "nothing that looks like a database gives way");
    assert!(fixture.volume.begin(Work::Initdb, &restored).is_err());
    fixture.volume.announced().unwrap();
    assert_eq!(fixture.look().await, VolumeState::Data(system));
}

#[tokio::test]
async fn an_empty_volume_is_empty_whatever_the_file_system_put_there() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("lost+found")).unwrap();
    fs::create_dir(fixture.at("pgdata")).unwrap();
    assert_eq!(fixture.look().await, VolumeState::Empty);
}

#[tokio::test]
async fn an_initdb_that_was_interrupted_is_done_again() {
    let fixture = Fixture::new();
    fixture.volume.begin(Work::Initdb, &VolumeState::Empty).unwrap();
    fs::create_dir(fixture.volume.scratch()).unwrap();
    fs::write(fixture.volume.scratch().join("PG_VERSION"), "15\n").unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedInitdb);
    let system = fixture.initialised().await;
    assert_eq!(fixture.look().await, VolumeState::Unannounced(system));
    fixture.volume.announced().unwrap();
    assert_eq!(fixture.look().await, VolumeState::Data(system));
}

#[tokio::test]
async fn a_clone_that_was_interrupted_is_done_again() {
    let fixture = Fixture::new();
    fixture.volume.begin(Work::Clone, &VolumeState::Empty).unwrap();
    fs::create_dir(fixture.volume.scratch()).unwrap();
    fs::write(fixture.volume.scratch().join("base"), "half").unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedClone);
    fixture.volume.begin(Work::Clone, &VolumeState::UnfinishedClone).unwrap();
    assert!(!fixture.volume.scratch().exists());
    fixture.home.initdb(&fixture.volume.scratch());
    let system = fixture.volume.finish(Work::Clone, &postgresql(), None).await.unwrap();
    assert_eq!(fixture.look().await, VolumeState::Data(system));
}

#[tokio::test]
async fn a_copy_of_another_database_is_not_put_in_place() {
    let fixture = Fixture::new();
    fixture.volume.begin(Work::Clone, &VolumeState::Empty).unwrap();
    fixture.home.initdb(&fixture.volume.scratch());
    let error = fixture.volume.finish(Work::Clone, &postgresql(), Some(SystemIdentifier(7))).await.unwrap_err();
    assert!(error.to_string().contains('7'), "{error}");
    assert_eq!(fixture.look().await, VolumeState::UnfinishedClone);
}

#[tokio::test]
async fn a_database_nobody_has_seen_makes_room_for_a_clone() {
    let fixture = Fixture::new();
    let system = fixture.initialised().await;
    fixture.volume.begin(Work::Clone, &VolumeState::Unannounced(system)).unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedClone);
    assert!(!fixture.volume.pgdata().exists());
}

#[tokio::test]
async fn a_database_is_never_begun_upon() {
    let fixture = Fixture::new();
    let system = fixture.initialised().await;
    fixture.volume.announced().unwrap();
    for work in [Work::Initdb, Work::Clone] {
        assert!(fixture.volume.begin(work, &VolumeState::Data(system)).is_err());
    }
    assert_eq!(fixture.look().await, VolumeState::Data(system));
}

#[tokio::test]
async fn what_a_rewind_left_half_way_is_no_database_whoever_began_it() {
    let fixture = Fixture::new();
    let system = fixture.initialised().await;
    fixture.volume.announced().unwrap();
    fixture.volume.begin_rewind().unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedRewind);
    assert!(fixture.volume.begin(Work::Clone, &VolumeState::UnfinishedRewind).is_err(), "it is not deleted either");
    fs::write(fixture.at("rewind.unfinished"), "orders-2\n").unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedRewind);
    // Even where the rewind has left nothing that can be read.
    let control = fixture.volume.pgdata().join("global/pg_control");
    let kept = fs::read(&control).unwrap();
    fs::remove_file(&control).unwrap();
    assert_eq!(fixture.look().await, VolumeState::UnfinishedRewind);
    fs::write(&control, kept).unwrap();
    fixture.volume.rewound().unwrap();
    assert_eq!(fixture.look().await, VolumeState::Data(system));
}

#[tokio::test]
async fn what_is_set_aside_stays_whole_until_its_room_is_needed() {
    let (home, wal) = (Home::new(), Home::new());
    let volume = Volume::new(home.path().to_owned(), Some(wal.path().to_owned()), "orders-1");
    volume.begin(Work::Initdb, &VolumeState::Empty).unwrap();
    home.initdb(&volume.scratch());
    fs::rename(volume.scratch().join("pg_wal"), volume.wal().unwrap()).unwrap();
    std::os::unix::fs::symlink(volume.wal().unwrap(), volume.scratch().join("pg_wal")).unwrap();
    volume.finish(Work::Initdb, &postgresql(), None).await.unwrap();
    volume.announced().unwrap();
    volume.begin_rewind().unwrap();

    volume.set_aside().unwrap();
    assert_eq!(volume.inspect(&postgresql()).await, VolumeState::UnfinishedClone);
    volume.begin(Work::Clone, &VolumeState::UnfinishedClone).unwrap();
    let aside = home.path().join("pgdata.aside");
    volume.make_room(LastCopy::Other).unwrap();
    assert!(aside.join("global/pg_control").exists());
    assert!(fs::read_dir(aside.join("pg_wal")).unwrap().count() > 0, "its WAL is set aside with it");
    volume.make_room(LastCopy::FoundNoRoom).unwrap();
    assert!(!aside.exists() && !wal.path().join("pg_wal.aside").exists());
}

#[tokio::test]
async fn what_is_not_ours_is_foreign_and_stays() {
    for stranger in ["notes.txt", "pgdata.scratch", "pgdata/base"] {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.at(stranger)).unwrap();
        let state = fixture.look().await;
        assert!(matches!(state, VolumeState::Foreign(_)), "{stranger}: {state:?}");
        assert!(fixture.volume.begin(Work::Initdb, &state).is_err());
        assert!(fixture.at(stranger).exists());
    }
}

#[tokio::test]
async fn a_marker_of_another_instance_frees_nothing() {
    let fixture = Fixture::new();
    fs::write(fixture.at("initdb.unfinished"), "orders-2\n").unwrap();
    fs::create_dir(fixture.volume.scratch()).unwrap();
    assert!(matches!(fixture.look().await, VolumeState::Foreign(_)));
}

#[tokio::test]
async fn wal_without_data_is_foreign() {
    let (home, wal) = (Home::new(), Home::new());
    fs::create_dir(wal.path().join("pg_wal")).unwrap();
    let volume = Volume::new(home.path().to_owned(), Some(wal.path().to_owned()), "orders-1");
    assert_eq!(volume.inspect(&postgresql()).await, VolumeState::Empty);
    fs::write(wal.path().join("pg_wal/000000010000000000000001"), "WAL").unwrap();
    assert!(matches!(volume.inspect(&postgresql()).await, VolumeState::Foreign(_)));
}

#[tokio::test]
async fn a_damaged_control_file_is_refused_not_replaced() {
    let fixture = Fixture::new();
    fixture.initialised().await;
    fixture.volume.announced().unwrap();
    fs::write(fixture.volume.pgdata().join("global/pg_control"), vec![0; 8192]).unwrap();
    assert!(matches!(fixture.look().await, VolumeState::Foreign(_)));
}
