"""Tests that only local files can pass: left out if the others run over an object store."""

__all__ = ['FILES', 'LOCAL_ONLY', 'PART', 'is_local_only']

FILES = [
    *('tests/bag/test_damage.py', 'tests/bag/test_golden.py', 'tests/bag/test_index.py'),
    *('tests/bag/test_reader.py', 'tests/bag/test_writer.py'),
    *(
        'tests/dataset/writing/test_append.py',
        'tests/dataset/reading/test_batch.py',
        'tests/dataset/test_reader.py',
        'tests/dataset/format/test_refs.py',
    ),
    *('tests/dataset/test_sharded.py', 'tests/views/test_views.py', 'tests/dataset/writing/test_writer.py'),
    *('tests/dataset/reading/test_optional_fields.py', 'tests/dataset/writing/test_unfinished.py'),
]
"""Those that run: `make test-cloud`."""

PART = [
    'tests/bag/test_writer.py',
    'tests/dataset/reading/test_batch.py',
    'tests/dataset/test_sharded.py',
    'tests/dataset/writing/test_writer.py',
]
"""Those that run with the second client of a storage as well."""

LOCAL_ONLY = {
    'are read while they grow, or go on after a writer that was killed': [
        'test_a_closed_dataset_that_is_resumed_stays_readable',
        'test_a_partly_appended_tail_is_tolerated',
        'test_a_shard_that_grew_stays_as_it_was',
        'test_a_writer_resumes_while_a_reader_opens',
        'test_an_unclosed_shard_is_closed_without_the_new_fields',
        'test_a_writer_may_end_between_any_two_system_calls',
        'test_append_may_keep_only_the_first_records',
        'test_ctrl_c_at_any_line_leaves_a_writer_that_continues',
        'test_ctrl_c_at_any_line_leaves_whole_datapoints',
        'test_it_is_unfinished_while_it_is_written',
        'test_killed_writers',
        'test_many_killed_writers',
        'test_readers_poll_while_a_writer_works',
        'test_records_whose_limits_were_written_stay',
        'test_resuming',
        'test_resuming_a_part_of_the_datapoints',
        'test_resuming_counts_on',
        'test_resuming_drops_only_what_is_incomplete',
        'test_resuming_drops_refs_at_the_end_that_lead_nowhere',
        'test_resuming_keeps_what_readers_have',
        'test_resuming_leaves_closed_shards_alone',
        'test_size_is_what_the_bags_take',
        'test_the_last_folder_may_be_one_that_is_being_made',
        'test_the_order_of_fields_of_a_folder_that_was_only_begun',
        'test_values_that_do_not_fit',
        'TestWriting',
    ],
    'are mapped': [
        'test_a_view_costs_no_memory',
        'test_raw_values_alias_the_file',
        'test_views_of_a_mapped_uncompressed_bag_alias_the_file',
    ],
    'have limits beside them, whose names count': [
        'test_append_to_a_bag_whose_limits_are_elsewhere_loses_nothing',
        'test_limits_beside_records_that_end_before_them',
        'test_limits_of_another_bag_beside_a_closed_one',
        'test_nothing_is_overwritten_unless_asked_for',
    ],
    'have locks, modes, descriptors, a full disk, and folders without anything in them': [
        'test_a_disk_that_is_full_at_close',
        'test_a_file_that_fails_leaves_the_bag_as_before',
        'test_a_folder_that_lost_its_spec_or_refs_is_damage',
        'test_a_folder_whose_making_failed_half_way',
        'test_a_fork_while_a_thread_waits_for_limits',
        'test_a_full_disk',
        'test_a_run_that_does_not_fit_on_the_disk_leaves_the_bag_as_before',
        'test_a_run_that_fails_at_once_can_be_started_again',
        'test_a_writer_knows_a_lock_per_share',
        'test_an_exception_before_the_first_datapoint_leaves_nothing',
        'test_any_other_folder_without_spec_or_refs_is_damage',
        'test_appending_keeps_the_mode_bits',
        'test_files_close_at_once_with_their_last_user',
        'test_many_records_for_which_there_is_no_room',
        'test_records_on_a_full_disk_stay_buffered',
        'test_temporary_files_of_killed_writers',
        'test_two_writers',
        'test_two_writers_in_one_folder',
    ],
    'change under an open reader, which here was read as a whole at open': [
        'test_a_file_that_became_shorter_since_it_was_opened',
        'test_an_index_over_damaged_records_raises',
    ],
    'are read a little ahead, as nothing is waited for': [
        'test_a_budget_of_bytes_bounds_what_is_read_ahead',
    ],
    'are asked ten thousand times and more in a test, which would take minutes': [
        'test_records_of_one_length_except_perhaps_one',
        'test_threads_read_records_of_one_length_while_these_are_found_to_be_so',
    ],
    'take no memory, as a server in the process does, and copies of whole objects': [
        'test_a_large_record_is_streamed',
        'test_files_of_any_size_are_copied_in_pieces',
        'test_generators_give_one_value_at_a_time',
        'test_iterating_over_large_records_holds_few',
    ],
    'are named in errors as they are, not by the URL that they are put behind': [
        'test_a_file_cut_short_anywhere_never_gives_another_record',
        'test_random_files',
    ],
}
"""By what local files do: names of functions, or of classes."""

NAMES = {name for names in LOCAL_ONLY.values() for name in names}


def is_local_only(nodeid: str) -> bool:
    names = nodeid.partition('[')[0].split('::')[1:]
    return bool(NAMES & set(names)) or '[live' in nodeid or '-live' in nodeid
