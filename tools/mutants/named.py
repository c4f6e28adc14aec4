"""Which mistakes must never go unnoticed? Each is one change of the source, with the promise that it breaks.

The guard is tried first. A line whose old text is no longer in its file exactly once, or whose guard is gone, stops the
run: rewrite it for the new code.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mutants.mutant import Mutant, make_mutant


class Named(NamedTuple):
    file: str
    old: str
    new: str
    promise: str
    guard: str  # the test that keeps it, below tests/


_DATA = (
    Named(
        "data/reading.py",
        "test.labels = test.labels.new_tensor([number[label] if",
        "_ = test.labels.new_tensor([number[label] if",
        "a test set's classes are numbered as the training set's",
        "data/test_reading.py::test_images_without_a_label_stay_without",
    ),
    Named(
        "data/latent_cache.py",
        ", repr(sorted(images.excluded))]",
        "]",
        "latents are named by the images that were left out",
        "evaluation/test_cache_keys.py::test_latents",
    ),
    Named(
        "data/latent_cache.py",
        "images.fingerprint, config.fingerprint, repr(",
        "images.fingerprint, repr(",
        "latents are named by their autoencoder",
        "evaluation/test_cache_keys.py::test_latents",
    ),
    Named(
        "data/latent_cache.py",
        "repr(config.image_size), ",
        "",
        "latents are named by the size of the images",
        "evaluation/test_cache_keys.py::test_latents",
    ),
    Named(
        "data/statistics.py",
        "brightest = 2**images.bits - 1",
        "brightest = 255",
        "statistics of 16-bit images are in [0, 1]",
        "data/test_statistics.py::test_they_are_those_of_numpy",
    ),
    Named(
        "data/decode.py",
        ".astype(np.uint32) + 128) // 257)",
        ".astype(np.uint32)) // 257)",
        "16 bits are rounded to 8",
        "data/test_decode.py::test_depths_and_grey_are_rounded_to_the_nearest_level",
    ),
    Named(
        "data/decode.py",
        "np.uint16(257)",
        "np.uint16(256)",
        "white of 8 bits is white of 16 bits",
        "data/test_decode.py::test_depths_and_grey_are_rounded_to_the_nearest_level",
    ),
    Named(
        "data/decode.py",
        "114 * blue + 500) // 1000",
        "114 * blue) // 1000",
        "grey is rounded, not cut",
        "data/test_decode.py::test_depths_and_grey_are_rounded_to_the_nearest_level",
    ),
    Named(
        "data/order.py",
        "return order[keep[order]]",
        "return order[keep]",
        "a bad file moves its neighbours up and never reshuffles them",
        "data/test_order.py::test_excluding_samples_does_not_reorder_the_others",
    ),
    Named(
        "data/order.py",
        "slice(rank * batch_size // world, (rank + 1) * batch_size // world)",
        "slice(rank * (batch_size // world), (rank + 1) * (batch_size // world))",
        "no sample is dropped where the batch is no multiple of the world size",
        "data/test_order.py::test_the_slices_of_all_ranks_are_the_batch",
    ),
    Named(
        "data/eviction.py",
        "if not lock_exclusively(about.fileno()):",
        "if False:",
        "a cache that is in use is not removed",
        "data/test_eviction.py::test_a_cache_in_use_here_stays_until_it_is_let_go",
    ),
    Named(
        "data/encoded.py",
        "    if not isinstance(data, OSError) and digest_of(data) != content.digests_ND[index].tobytes():",
        "    if False:",
        "an image that was replaced after it was hashed does not pass for the old one",
        "reliability/test_r30_replaced_images.py::test_a_folder_that_is_replaced_during_the_work_gives_no_vector_of_another_image",
    ),
    Named(
        "data/cache.py",
        "if crc32(self._pixels[offset : offset + self.channels * height * width].data) != crc:",
        "if False:",
        "pixels that a faulty disk changed are not used",
        "data/test_cache.py::test_pixels_that_were_zeroed_or_changed_are_refused_and_decoded_again",
    ),
    Named(
        "data/cache.py",
        ' and crc32(self.index.tobytes()) == self.about["index_crc"]',
        "",
        "an index that a faulty disk changed is not used",
        "data/test_cache.py::test_an_index_that_was_zeroed_is_not_believed",
    ),
    Named(
        "data/encoded.py",
        " and wanted.channels in (None, found.channels)",
        "",
        "grey images are not taken from the cache of the same files in colour",
        "verbs/test_channels.py::test_the_decoded_cache_does_not_mix_channels_and_is_shared_where_they_are_those_of_the_files",
    ),
    Named(
        "data/making.py",
        "{FOLDER}{VERSION}-",
        "{FOLDER}",
        "parts that an earlier version left in another order are not joined",
        "data/test_parts.py::test_parts_of_another_order_are_not_joined",
    ),
    Named(
        "data/cache.py",
        'self.about["version"] == VERSION and ',
        "",
        "a cache whose pixels lie in another order is not read",
        "data/test_layout.py::test_a_cache_of_another_order_is_not_read",
    ),
    Named(
        "data/sources.py",
        "if error.errno not in (errno.ENOENT, errno.ELOOP):",
        "if False:",
        "a file that cannot be looked at does not vanish from its set",
        "data/test_odd_files.py::test_a_file_whose_status_cannot_be_read_is_refused",
    ),
    Named(
        "data/content.py",
        "return all(is_settled(each, moment_ns) for each in self._stamps)",
        "return True",
        "hashes of files that changed a moment ago are not trusted",
        "data/test_content.py::test_young_files_are_hashed_again_because_a_stamp_may_not_tell",
    ),
)

_EVALUATION = (
    Named(
        "evaluation/extract.py",
        "    if rows.done == images.usable:",
        "    if True:",
        "features without an image that could not be read once are not kept",
        "reliability/test_r30_replaced_images.py::test_an_image_that_could_not_be_read_is_in_the_next_features",
    ),
    Named(
        "evaluation/reference.py",
        "if keep and found.n == images.usable:",
        "if keep:",
        "statistics without an image that could not be read once are not kept",
        "reliability/test_r30_replaced_images.py::test_an_image_that_could_not_be_read_is_in_the_next_features",
    ),
    Named(
        "evaluation/table_files.py",
        "return bool(rows == min(",
        "return bool(rows <= min(",
        "a part that lacks an image is computed again",
        "reliability/test_r30_replaced_images.py::test_a_part_of_an_embedding_that_lacks_an_image_is_computed_again",
    ),
    Named(
        "evaluation/classify.py",
        "yield rows_N[fold_N == fold], rows_N[fold_N != fold]",
        "yield rows_N[fold_N == fold], rows_N",
        "no fold learns from the rows that it predicts",
        "evaluation/test_folds.py::test_nearest_neighbours_of_noise_are_at_chance",
    ),
    Named(
        "evaluation/classify.py",
        'fold_N = stratified_folds(labels_N, folds, generator=generator_for(seed, "probe", 0), groups_N=groups_N)',
        'fold_N = stratified_folds(labels_N, folds, generator=generator_for(seed, "probe", 0))',
        "tiles of one file, and copies of one image, stay in one fold",
        "evaluation/test_folds.py::test_tiles_of_a_file_and_copies_of_an_image_stay_in_one_fold",
    ),
    Named(
        "evaluation/encoder.py",
        "repr((size, encoder.channels, encoder.mean, encoder.std))",
        "repr((size, encoder.channels))",
        "raw pixels are named by mean and std",
        "evaluation/test_cache_keys.py::test_pixels_are_named_by_size_and_by_how_they_are_normalised",
    ),
    Named(
        "evaluation/extract.py",
        "        repr(excluded),\n",
        "",
        "features are named by the images left out",
        "evaluation/test_cache_keys.py::test_features",
    ),
    Named(
        "evaluation/extract.py",
        "        *view,\n",
        "",
        "features are named by layer and pooling",
        "evaluation/test_cache_keys.py::test_features",
    ),
    Named(
        "evaluation/extract.py",
        "F.pad(batch.ids_B, (0, missing)) + offset)",
        "F.pad(batch.ids_B, (0, missing)))",
        "image i of the test set does not share its noise with image i of the training set",
        "evaluation/test_noisy.py::test_the_noise_belongs_to_the_image_not_to_the_batch",
    ),
    Named(
        "evaluation/reference.py",
        '        "left out": repr(sorted(images.excluded)),\n',
        "",
        "reference statistics are named by the images left out",
        "evaluation/test_cache_keys.py::test_reference_statistics",
    ),
    Named(
        "evaluation/reference.py",
        '        "view": repr(tuple(view)),\n',
        "",
        "reference statistics are named by layer and pooling",
        "evaluation/test_cache_keys.py::test_reference_statistics",
    ),
    Named(
        "evaluation/reference.py",
        '        "extractor": extractor.fingerprint,\n',
        "",
        "reference statistics are named by their extractor",
        "evaluation/test_cache_keys.py::test_reference_statistics",
    ),
    Named(
        "evaluation/embed.py",
        " repr(sorted(images.excluded)),",
        "",
        "parts of an embedding are named by the images left out",
        "evaluation/test_cache_keys.py::test_parts_of_an_embedding",
    ),
    Named(
        "evaluation/embed.py",
        ", repr(columns)]",
        "]",
        "parts of an embedding are named by layer and pooling",
        "evaluation/test_cache_keys.py::test_parts_of_an_embedding",
    ),
    Named(
        "evaluation/embed.py",
        "images.label_fingerprint, repr(columns)]",
        "repr(columns)]",
        "parts of an embedding are named by the labels",
        "evaluation/test_cache_keys.py::test_parts_of_an_embedding",
    ),
    Named(
        "evaluation/trained_denoiser.py",
        "return words if self.latent is None else [*words, self.latent.fingerprint]",
        "return words",
        "features and samples are named by the autoencoder",
        "evaluation/test_cache_keys.py::test_a_diffusion_model_is_named_by_its_space_its_objective_its_noise_and_its_weights",
    ),
    Named(
        "evaluation/trained_denoiser.py",
        "if vae.fingerprint != space.fingerprint:",
        "if False:",
        "samples are decoded by the autoencoder of the training",
        "training/test_latent.py::test_a_run_on_latents_resumes_bitwise_and_its_samples_are_decoded",
    ),
    Named(
        "evaluation/outcome_cache.py",
        '{torch.__version__} {settings!r}"',
        '{torch.__version__}"',
        "cached outcomes are named by their settings",
        "evaluation/test_outcome_cache.py::test_another_question_is_measured_again",
    ),
)

_MEASURES = (
    Named(
        "measures/segmentation.py",
        "occurs = union > 0",
        "occurs = confusion.sum(dim=0) > 0",
        "mIoU counts classes that are predicted and nowhere in the masks",
        "measures/test_segmentation.py::test_a_class_that_is_predicted_and_nowhere_in_the_masks_counts_as_zero",
    ),
    Named(
        "measures/segmentation.py",
        "occurs = union > 0",
        "occurs = union >= 0",
        "mIoU leaves out classes that occur nowhere",
        "measures/test_segmentation.py::test_classes_that_occur_nowhere_do_not_count",
    ),
    Named(
        "measures/frechet.py",
        "(spread - spread.mean()).quantile",
        "(spread - value).quantile",
        "the interval of a Frechet distance is centred at its value",
        "measures/test_frechet.py::test_the_interval_of_few_samples_is_around_their_distance_and_not_around_that_of_resamples",
    ),
    Named(
        "measures/rank.py",
        "singular.where(singular > noise, 0.0).square()",
        "singular.square()",
        "rounding is not counted as rank",
        "measures/test_rank.py::test_rows_that_differ_by_rounding_alone_have_rank_zero",
    ),
    Named(
        "measures/knn.py",
        "(relative_MK / temperature).exp()",
        "(relative_MK / 0.07).exp()",
        "votes are weighted by the temperature that was given",
        "measures/test_knn.py::test_the_temperature_decides_between_one_near_and_two_far_neighbours",
    ),
    Named(
        "measures/probe.py",
        "deviation_D > 1e-6 * mean_D.abs()",
        "deviation_D > 0",
        "a probe does not learn from the rounding of a constant feature",
        "measures/test_probe.py::test_a_feature_that_is_constant_up_to_its_last_bit_is_not_learned_from",
    ),
)

_OBJECTIVES = (
    Named(
        "objectives/diffusion.py",
        "(torch.floor(uniform_B * self.path.steps) + 1) / self.path.steps",
        "uniform_B",
        "a discrete schedule is trained at its steps",
        "objectives/test_diffusion.py::test_discrete_times_are_1_to_n_equally_often",
    ),
    Named(
        "objectives/diffusion.py",
        "t * self.path.steps - (1 - self.config.first_step)",
        "t * self.path.steps",
        "the network of a discrete schedule is given its step number from the first one on",
        "objectives/test_diffusion.py::test_a_network_that_counts_its_steps_from_first_step_is_told_so",
    ),
    Named(
        "objectives/paths.py",
        "(torch.ceil(age * self.steps).long() - 1)",
        "torch.floor(age * self.steps).long()",
        "an age on a step belongs to the stretch that ends there",
        "objectives/test_diffusion.py::test_at_a_step_of_a_discrete_schedule_the_rate_is_that_of_the_step_that_ends_there",
    ),
    Named(
        "objectives/samplers/sde.py",
        "if step < len(times):",
        "if True:",
        "the last step of an SDE adds no noise",
        "objectives/test_samplers.py::test_the_reverse_sde_ends_in_the_moments_of_the_data_at_first_order",
    ),
    Named(
        "objectives/samplers/sde.py",
        'if last_step == "mean" else torch.zeros_like(now)',
        'if last_step == "euler" else torch.zeros_like(now)',
        "the last step of an interpolant SDE is the one that was asked for",
        "objectives/test_samplers.py::test_the_last_step_is_the_one_that_was_asked_for",
    ),
    Named(
        "objectives/samplers/times.py",
        "torch.linspace(start, 1.0 - last_size, steps",
        "torch.linspace(start, 1.0, steps",
        "the last step of an interpolant SDE starts at 0.96",
        "objectives/test_samplers.py::test_the_published_250_steps_end_near_the_data",
    ),
    Named(
        "objectives/samplers/times.py",
        "    times[0], times[-1] = start, end  # not rounded\n",
        "",
        "times begin and end exactly where they were asked to",
        "objectives/test_samplers.py::test_times_begin_and_end_exactly_where_they_were_asked_to",
    ),
)

_SHORTCUTS = (
    Named(
        "shortcuts/schedule.py",
        "chosen = max(wanted, LOWEST_AUTO_ALPHA_MIN)",
        "chosen = wanted",
        "auto never chooses an alpha_min below the lowest stable one",
        "shortcuts/test_schedule.py::test_auto_is_the_alpha_min_whose_effective_alpha_is_the_recommended_one",
    ),
    Named(
        "shortcuts/schedule.py",
        "RECOMMENDED_EFFECTIVE = 3e-3",
        "RECOMMENDED_EFFECTIVE = 6e-3",
        "auto means the recommended effective alpha",
        "shortcuts/test_schedule.py::test_auto_is_the_alpha_min_whose_effective_alpha_is_the_recommended_one",
    ),
    Named(
        "shortcuts/schedule.py",
        "choose_alpha_min(depth, shortcuts=shortcuts, schedule=schedule, per=per, fade=fade).alpha_min",
        "choose_alpha_min(depth, shortcuts=shortcuts).alpha_min",
        "auto follows schedule, per and fade",
        "shortcuts/test_schedule.py::test_auto_is_the_alpha_min_whose_effective_alpha_is_the_recommended_one",
    ),
    Named(
        "shortcuts/fading.py",
        "if not equal_bits(found.runner.run(), found.plain):",
        "if False:",
        "fade refuses a rewritten model that differs at alpha 1",
        "shortcuts/test_fade.py::test_what_cannot_be_done_is_refused_in_one_sentence_and_leaves_the_model_as_it_was",
    ),
    Named(
        "shortcuts/fading.py",
        "if not close(found.runner.run(training=training), outputs):",
        "if False:",
        "fade refuses a rewritten model that differs from the faded additions",
        "shortcuts/test_fade.py::test_what_cannot_be_done_is_refused_in_one_sentence_and_leaves_the_model_as_it_was",
    ),
    Named(
        "shortcuts/fading.py",
        "if not close(traced, self.plain):",
        "if False:",
        "fade refuses a model that gives two outputs for one example",
        "shortcuts/test_fade.py::test_what_cannot_be_done_is_refused_in_one_sentence_and_leaves_the_model_as_it_was",
    ),
    Named(
        "shortcuts/fading.py",
        "        changes.undo()\n        raise\n",
        "        raise\n",
        "a model that fade refuses is restored",
        "shortcuts/test_fade.py::test_what_cannot_be_done_is_refused_in_one_sentence_and_leaves_the_model_as_it_was",
    ),
)

_STORAGE = (
    Named(
        "storage/lock.py",
        "if not os.path.samestat(os.fstat(descriptor), path.stat()):",
        "if False:",
        "a cache that was replaced between opening and locking is not believed",
        "storage/test_lock.py::test_a_file_that_was_replaced_between_opening_and_locking_is_not_held",
    ),
    Named(
        "storage/lock.py",
        'raise FileNotFoundError(f"{path} is being removed") from None',
        "return",
        "a cache that is being removed is not used",
        "storage/test_lock.py::test_a_file_that_is_being_removed_is_not_held",
    ),
    Named(
        "storage/lock.py",
        "    os.register_at_fork(after_in_child=_drop_in_child)",
        "    pass",
        "a forked child does not keep its parent's lock",
        "storage/test_lock.py::test_a_killed_holder_frees_it_even_while_its_child_lives",
    ),
    Named(
        "storage/atomic.py",
        ', "EXCL"',
        "",
        "a link planted under the temporary name is not followed",
        "storage/test_atomic.py::test_a_new_file_is_never_one_that_exists_nor_what_a_link_points_to",
    ),
    Named(
        "storage/atomic.py",
        "        file.flush()\n        os.fsync(file.fileno())\n",
        "        file.flush()\n",
        "a file is on the disk before it is renamed",
        "storage/test_atomic.py::test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_after_it",
    ),
    Named(
        "storage/atomic.py",
        'return not _is_another_living_process(match["pid"])',
        "return True",
        "what a living process is writing is not cleared",
        "storage/test_atomic.py::test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay",
    ),
)

_RUNS = (
    Named(
        "runs/open.py",
        'return averaged or dict(tensors.get("model", {})), bool(averaged)',
        'return dict(tensors.get("model", {})), bool(averaged)',
        "samples and features use the averaged weights of a checkpoint",
        "runs/test_open.py::test_averaged_weights_are_unwrapped_and_are_those_of_the_checkpoint",
    ),
    Named(
        "runs/open.py",
        "repr(self.model.shortcut_record), repr((self.mean, self.std))]",
        "repr(self.model.shortcut_record)]",
        "an encoder is named by mean and std",
        "evaluation/test_cache_keys.py::test_an_encoder_with_other_settings_is_another_one",
    ),
    Named(
        "runs/open.py",
        "words = [repr(self.config), repr(self.model.shortcut_record), ",
        "words = [repr(self.config), ",
        "an encoder is named by its alphas",
        "evaluation/test_cache_keys.py::test_an_encoder_with_other_alphas_is_another_one",
    ),
)

_TRAINING = (
    Named(
        "training/state.py",
        "trainee.model if trainee.ema is None else trainee.ema.module",
        "trainee.model",
        "the encoder of a run has the averaged weights",
        "training/test_loop.py::test_the_saved_encoder_is_of_the_averaged_weights",
    ),
    Named(
        "training/validation.py",
        "        model.eval()\n",
        "",
        "a classifier is judged in evaluation mode",
        "training/test_validation.py::test_it_judges_in_evaluation_mode_and_leaves_the_model_in_training_mode",
    ),
    Named(
        "training/validation.py",
        "        model.train()\n",
        "",
        "training goes on in training mode after a judgement",
        "training/test_validation.py::test_it_judges_in_evaluation_mode_and_leaves_the_model_in_training_mode",
    ),
    Named(
        "training/loop.py",
        "        session.run.drop_snapshots_after(checkpoint.step)\n",
        "",
        "snapshots of abandoned steps are removed on resume",
        "training/test_loop.py::test_what_came_after_the_checkpoint_is_gone_before_training_goes_on",
    ),
    Named(
        "training/loop.py",
        "        session.run.truncate_metrics(checkpoint.step)\n",
        "",
        "metrics of abandoned steps are removed on resume",
        "training/test_loop.py::test_what_came_after_the_checkpoint_is_gone_before_training_goes_on",
    ),
    Named(
        "training/loop.py",
        "(aside := session.run.set_results_aside(checkpoint.step))",
        "(aside := None)",
        "results of abandoned weights are set aside on resume",
        "training/test_loop.py::test_what_came_after_the_checkpoint_is_gone_before_training_goes_on",
    ),
    Named(
        "training/loop.py",
        "            session.run.drop_encoder()\n",
        "",
        "the encoder of abandoned steps is removed on resume",
        "training/test_loop.py::test_what_came_after_the_checkpoint_is_gone_before_training_goes_on",
    ),
    Named(
        "training/step.py",
        "weight=float(present is batch)",
        "weight=1.0",
        "the stand-in of a process without samples weighs nothing",
        "training/test_loop.py::test_a_process_whose_samples_were_all_dropped_takes_part_with_nothing",
    ),
    Named(
        "training/step.py",
        "weight * counted * team.world / config.batch_size",
        "weight * counted / config.batch_size",
        "gradients of several processes are those of one",
        "training/test_global_order.py::test_any_world_accumulation_loss_of_samples_and_resume_show_nowhere",
    ),
    Named(
        "training/step.py",
        "weight * counted * team.world / config.batch_size",
        "weight * team.world / len(pieces)",
        "every sample weighs the same, however the batch was cut",
        "training/test_global_order.py::test_any_world_accumulation_loss_of_samples_and_resume_show_nowhere",
    ),
    Named(
        "runtime/distributed.py",
        "            value /= self.world\n",
        "",
        "the loss of several processes is the mean of theirs",
        "runtime/test_distributed.py::test_the_mean_and_the_maximum_are_over_the_processes",
    ),
    Named(
        "runtime/distributed.py",
        "dist.all_reduce(tensor, op=dist.ReduceOp.MAX)",
        "pass",
        "one process that fails or is asked to stop stops all",
        "runtime/test_distributed.py::test_the_mean_and_the_maximum_are_over_the_processes",
    ),
)

_SWEEPS = (
    Named(
        "sweeps/run.py",
        'experiment = replace(experiment, warnings=(f"{overlap}.",))',
        "pass",
        "the table of a sweep says that its test images are learned from",
        "sweeps/test_sweep.py::test_test_images_that_are_learned_from_are_said_before_the_first_training",
    ),
    Named(
        "sweeps/ledger.py",
        "record.finished[: equal.index(False)] if False in equal else record.finished[: len(equal)]",
        "record.finished",
        "a command counts as done only while everything before it is the same",
        "sweeps/test_sweep.py::test_what_was_measured_on_another_run_does_not_count",
    ),
    Named(
        "sweeps/trials.py",
        "        ledger.begin(words)\n",
        "",
        "a run that was started with other settings is not continued",
        "sweeps/test_sweep.py::test_a_command_that_fails_was_begun_and_is_not_finished",
    ),
    Named(
        "sweeps/ledger.py",
        "return finished and (trial.may_diverge or ",
        "return finished or (trial.may_diverge or ",
        "a trial is done when all of its commands are",
        "sweeps/test_sweep.py::test_what_was_measured_on_another_run_does_not_count",
    ),
    Named(
        "sweeps/ledger.py",
        "if begun and begun[0] != trial.commands[0]:",
        "if False:",
        "a sweep with other settings is refused",
        "sweeps/test_sweep.py::test_a_command_that_fails_was_begun_and_is_not_finished",
    ),
    Named(
        "sweeps/trials.py",
        "        if code != 0:\n",
        "        if False:\n",
        "a command that failed is not recorded as finished",
        "sweeps/test_sweep.py::test_a_command_that_fails_was_begun_and_is_not_finished",
    ),
    Named(
        "sweeps/tabulate.py",
        "if any(key in metric.protocol for key in unasked):",
        "if False:",
        "numbers of a step or a scan stay out of tables that do not ask for them",
        "sweeps/test_tabulate.py::test_numbers_of_a_step_or_of_a_scan_stay_out_of_a_table_that_does_not_ask_for_them",
    ),
    Named(
        "sweeps/experiment.py",
        'return (max if self.best == "max" else min)(records, key=lambda metric: metric.value)',
        "return max(records, key=lambda metric: metric.value)",
        "the best of several values is the best by the quantity's own measure",
        "sweeps/test_tabulate.py::test_of_several_numbers_the_best_by_its_own_measure_is_shown_or_the_last",
    ),
    Named(
        "sweeps/tabulate.py",
        "[(number, theirs[seed]) for seed, number in ours.items() if seed in theirs]",
        "list(zip(ours.values(), theirs.values()))",
        "differences are paired by seed",
        "sweeps/test_tabulate.py::test_a_seed_that_only_one_of_two_rows_has_is_in_no_difference",
    ),
)

_EXCHANGE = (
    Named(
        "exchange/import_pth.py",
        "_check_pickle(_check_archive(file, size, path), path)",
        "_check_archive(file, size, path)",
        "the pickle of a checkpoint is read before any of it is run",
        "exchange/test_import_pth.py::test_the_second_guard_refuses_other_names_and_instructions_before_any_is_run",
    ),
    Named(
        "exchange/import_pth.py",
        "if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:",
        "if False:",
        "a compressed member is refused",
        "exchange/test_import_pth.py::test_the_first_guard_refuses_archives_that_torch_save_does_not_write",
    ),
    Named(
        "exchange/import_pth.py",
        "weights_only=True",
        "weights_only=False",
        "torch.load runs nothing that a file names",
        "exchange/test_import_pth.py::test_the_third_guard_lets_torch_load_weights_alone",
    ),
    Named(
        "exchange/import_pth.py",
        "if TorchVersion(torch.__version__) < SAFE_TORCH:",
        "if False:",
        "a torch with known holes reads no checkpoint",
        "reliability/test_r06_imports.py::test_an_older_torch_is_not_trusted_with_such_files",
    ),
    Named(
        "exchange/import_pth.py",
        "> 2 * size:",
        "> 2000 * size:",
        "ten names for one storage do not fill the memory",
        "exchange/test_import_pth.py::test_names_for_one_storage_may_be_two_and_not_ten",
    ),
    Named(
        "exchange/import_pth.py",
        "if not _MEMBER.fullmatch(member.filename):",
        "if False:",
        "an archive with other members than torch.save writes is refused",
        "exchange/test_import_pth.py::test_the_first_guard_refuses_archives_that_torch_save_does_not_write",
    ),
    Named(
        "reports/server.py",
        '    "X-Content-Type-Options": "nosniff",\n',
        "",
        "a browser does not guess the type",
        "reports/test_server.py::test_every_answer_forbids_guessing_framing_keeping_and_telling",
    ),
    Named(
        "reports/server.py",
        '    "X-Frame-Options": "DENY",\n',
        "",
        "no other page frames the report",
        "reports/test_server.py::test_every_answer_forbids_guessing_framing_keeping_and_telling",
    ),
    Named(
        "reports/server.py",
        'if self.headers.get_all("Host") not in allowed:',
        "if False:",
        "requests for another host are refused",
        "reports/test_server.py::test_requests_of_other_hosts_are_refused",
    ),
)

NAMED = (
    *_EVALUATION,
    *_MEASURES,
    *_DATA,
    *_TRAINING,
    *_OBJECTIVES,
    *_SHORTCUTS,
    *_STORAGE,
    *_RUNS,
    *_SWEEPS,
    *_EXCHANGE,
)


def named_mutants(sources: dict[str, bytes], root: Path) -> list[Mutant]:
    if stale := [entry.promise for entry in NAMED if not _fits(entry, sources, root)]:
        raise SystemExit("named.py: the source or the guard of these has changed:\n  " + "\n  ".join(stale))
    found = []
    for entry in NAMED:
        source = sources[entry.file]
        start = source.index(entry.old.encode())
        end = start + len(entry.old.encode())
        guard = f"tests/{entry.guard}"
        found.append(make_mutant(entry.file, source, start, end, entry.new, "named", entry.promise, guard))
    return found


def _fits(entry: Named, sources: dict[str, bytes], root: Path) -> bool:
    file, name = entry.guard.split("::")
    guarded = f"def {name}(" in (root / "tests" / file).read_text() if (root / "tests" / file).exists() else False
    return guarded and sources.get(entry.file, b"").count(entry.old.encode()) == 1
