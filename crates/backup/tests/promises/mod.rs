//! What is promised of every store, whichever it is. Each promise is a function of a store that has nothing in it, or of one behind a proxy that fails on
//! demand, and becomes a test of its own wherever there is such a store: in this process (`store.rs`, `wal.rs`), or a server of a cloud's (`clouds.rs`).

#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses its part")]

pub mod log;
pub mod store;

/// A test for each of these promises, with all that `$from` gives.
macro_rules! each {
    ($from:path, $of:ident: $($promise:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $promise() {
            for (_alive, store) in $from().await {
                $crate::promises::$of::$promise(store).await;
            }
        }
    )+};
}

macro_rules! of_a_store {
    ($stores:path, $proxied:path) => {
        $crate::promises::each!(
            $stores,
            store: what_was_put_is_there_and_is_listed_and_goes,
            note_32_what_is_there_is_never_replaced,
            of_many_that_create_one_object_exactly_one_does,
            a_store_that_keeps_to_conditions_is_fit_and_nothing_is_left_of_the_look,
        );
        $crate::promises::each!(
            $proxied,
            store: a_put_whose_answer_was_lost_is_found_out_to_be_done,
            a_put_whose_answer_was_lost_may_still_be_a_conflict,
            a_put_that_never_arrived_is_sent_again,
            a_store_that_is_busy_is_asked_again_and_then_that_is_the_error,
            an_answer_that_is_cut_short_is_never_taken_for_a_whole_one,
        );
    };
}

macro_rules! of_an_archive {
    ($stores:path, $proxied:path) => {
        $crate::promises::each!(
            $stores,
            log: what_goes_in_comes_out,
            the_same_segment_is_there_whatever_compressed_it_and_another_is_a_conflict,
            note_32_an_archive_belongs_to_one_life_of_one_database,
            of_two_clusters_that_want_one_archive_one_gets_it,
            two_instances_that_archive_one_segment_do_no_harm,
        );
        $crate::promises::each!($proxied, log: a_segment_whose_acknowledgement_was_lost_is_archived_and_no_conflict);
    };
}

pub(crate) use {each, of_a_store, of_an_archive};
