"""Which mistakes must never go unnoticed? Each is one change of the source, with the promise that it breaks.

A line whose old text is no longer in its file exactly once stops the run: rewrite it for the new code.
"""

from __future__ import annotations

from typing import NamedTuple

from mutants.mutant import Mutant, make_mutant


class Named(NamedTuple):
    file: str
    old: str
    new: str
    promise: str


_DATA = (
    Named(
        "data/reading.py",
        "test.labels = test.labels.new_tensor([number[label] if",
        "_ = test.labels.new_tensor([number[label] if",
        "a test set's classes are numbered as the training set's",
    ),
    Named(
        "data/latents.py",
        "    words.append(repr(sorted(images.excluded)))",
        "    pass",
        "latents are named by the images that were left out",
    ),
    Named(
        "data/latents.py",
        "images.fingerprint, config.fingerprint, repr(",
        "images.fingerprint, repr(",
        "latents are named by their autoencoder",
    ),
    Named(
        "data/latents.py",
        "repr(config.image_size), ",
        "",
        "latents are named by the size of the images",
    ),
    Named(
        "data/statistics.py",
        "brightest = 2**images.bits - 1",
        "brightest = 255",
        "statistics of 16-bit images are in [0, 1]",
    ),
    Named(
        "data/decode.py", ".astype(np.uint32) + 128) // 257)", ".astype(np.uint32)) // 257)", "16 bits are rounded to 8"
    ),
    Named("data/decode.py", "np.uint16(257)", "np.uint16(256)", "white of 8 bits is white of 16 bits"),
    Named("data/decode.py", "114 * blue + 500) // 1000", "114 * blue) // 1000", "grey is rounded, not cut"),
    Named(
        "data/order.py",
        "return order[keep[order]]",
        "return order[keep]",
        "a bad file moves its neighbours up and never reshuffles them",
    ),
    Named(
        "data/order.py",
        "slice(rank * batch_size // world, (rank + 1) * batch_size // world)",
        "slice(rank * (batch_size // world), (rank + 1) * (batch_size // world))",
        "no sample is dropped where the batch is no multiple of the world size",
    ),
    Named(
        "data/eviction.py",
        "if not lock_exclusively(about.fileno()):",
        "if False:",
        "a cache that is in use is not removed",
    ),
)

_EVALUATION = (
    Named(
        "evaluation/classify.py",
        "*_of(train, rows_N[fold_N != fold]), *_of(train, rows_N[fold_N == fold])",
        "*_of(train, rows_N), *_of(train, rows_N[fold_N == fold])",
        "no fold learns from the rows that it predicts",
    ),
    Named(
        "evaluation/encoder.py",
        "repr((size, encoder.channels, encoder.mean, encoder.std))",
        "repr((size, encoder.channels))",
        "raw pixels are named by mean and std",
    ),
    Named("evaluation/extract.py", "        repr(excluded),\n", "", "features are named by the images left out"),
    Named("evaluation/extract.py", "        *view,\n", "", "features are named by layer and pooling"),
    Named(
        "evaluation/extract.py",
        "F.pad(batch.ids_B, (0, missing)) + offset)",
        "F.pad(batch.ids_B, (0, missing)))",
        "image i of the test set does not share its noise with image i of the training set",
    ),
    Named(
        "evaluation/reference.py",
        '        "left out": repr(sorted(images.excluded)),\n',
        "",
        "reference statistics are named by the images left out",
    ),
    Named(
        "evaluation/reference.py",
        '        "view": repr(tuple(view)),\n',
        "",
        "reference statistics are named by layer and pooling",
    ),
    Named(
        "evaluation/reference.py",
        '        "extractor": extractor.fingerprint,\n',
        "",
        "reference statistics are named by their extractor",
    ),
    Named(
        "evaluation/embed.py",
        "words += [repr(sorted(images.excluded)), ",
        "words += [",
        "parts of an embedding are named by the images left out",
    ),
    Named(
        "evaluation/embed.py",
        "images.label_fingerprint, *view, str(half)]",
        "images.label_fingerprint, str(half)]",
        "parts of an embedding are named by layer and pooling",
    ),
    Named(
        "evaluation/embed.py",
        "images.label_fingerprint, *view, str(half)]",
        "*view, str(half)]",
        "parts of an embedding are named by the labels",
    ),
    Named(
        "evaluation/trained_denoiser.py",
        "return words if self.latent is None else [*words, self.latent.fingerprint]",
        "return words",
        "features and samples are named by the autoencoder",
    ),
    Named(
        "evaluation/trained_denoiser.py",
        "if vae.fingerprint != space.fingerprint:",
        "if False:",
        "samples are decoded by the autoencoder of the training",
    ),
    Named(
        "evaluation/outcome_cache.py",
        '{torch.__version__} {settings!r}"',
        '{torch.__version__}"',
        "cached outcomes are named by their settings",
    ),
)

_MEASURES = (
    Named(
        "measures/segmentation.py",
        "occurs = union > 0",
        "occurs = confusion.sum(dim=0) > 0",
        "mIoU counts classes that are predicted and nowhere in the masks",
    ),
    Named(
        "measures/segmentation.py",
        "occurs = union > 0",
        "occurs = union >= 0",
        "mIoU leaves out classes that occur nowhere",
    ),
    Named(
        "measures/frechet.py",
        "(spread - spread.mean()).quantile",
        "(spread - value).quantile",
        "the interval of a Frechet distance is centred at its value",
    ),
    Named(
        "measures/rank.py",
        "singular.where(singular > noise, 0.0).square()",
        "singular.square()",
        "rounding is not counted as rank",
    ),
    Named(
        "measures/knn.py",
        "(relative_MK / temperature).exp()",
        "(relative_MK / 0.07).exp()",
        "votes are weighted by the temperature that was given",
    ),
    Named(
        "measures/probe.py",
        "deviation_D > 1e-6 * mean_D.abs()",
        "deviation_D > 0",
        "a probe does not learn from the rounding of a constant feature",
    ),
)

_OBJECTIVES = (
    Named(
        "objectives/diffusion.py",
        "(torch.floor(uniform_B * self.path.steps) + 1) / self.path.steps",
        "uniform_B",
        "a discrete schedule is trained at its steps",
    ),
    Named(
        "objectives/diffusion.py",
        "t * self.path.steps - (1 - self.config.first_step)",
        "t * self.path.steps",
        "the network of a discrete schedule is given its step number from the first one on",
    ),
    Named(
        "objectives/paths.py",
        "(torch.ceil(age * self.steps).long() - 1)",
        "torch.floor(age * self.steps).long()",
        "an age on a step belongs to the stretch that ends there",
    ),
    Named("objectives/samplers/sde.py", "if step < len(times):", "if True:", "the last step of an SDE adds no noise"),
    Named(
        "objectives/samplers/sde.py",
        'if last_step == "mean" else torch.zeros_like(now)',
        'if last_step == "euler" else torch.zeros_like(now)',
        "the last step of an interpolant SDE is the one that was asked for",
    ),
    Named(
        "objectives/samplers/times.py",
        "torch.linspace(start, 1.0 - last_size, steps",
        "torch.linspace(start, 1.0, steps",
        "the last step of an interpolant SDE starts at 0.96",
    ),
    Named(
        "objectives/samplers/times.py",
        "    times[0], times[-1] = start, end  # not rounded\n",
        "",
        "times begin and end exactly where they were asked to",
    ),
)

_SHORTCUTS = (
    Named(
        "shortcuts/schedule.py",
        "chosen = max(wanted, LOWEST_AUTO_ALPHA_MIN)",
        "chosen = wanted",
        "auto never chooses an alpha_min below the lowest stable one",
    ),
    Named(
        "shortcuts/schedule.py",
        "RECOMMENDED_EFFECTIVE = 3e-3",
        "RECOMMENDED_EFFECTIVE = 6e-3",
        "auto means the recommended effective alpha",
    ),
    Named(
        "shortcuts/schedule.py",
        "choose_alpha_min(depth, shortcuts=shortcuts, schedule=schedule, per=per, fade=fade).alpha_min",
        "choose_alpha_min(depth, shortcuts=shortcuts).alpha_min",
        "auto follows schedule, per and fade",
    ),
    Named(
        "shortcuts/fading.py",
        "if not equal_bits(found.runner.run(), found.plain):",
        "if False:",
        "fade refuses a rewritten model that differs at alpha 1",
    ),
    Named(
        "shortcuts/fading.py",
        "if not close(found.runner.run(training=training), outputs):",
        "if False:",
        "fade refuses a rewritten model that differs from the faded additions",
    ),
    Named(
        "shortcuts/fading.py",
        "if not close(traced, self.plain):",
        "if False:",
        "fade refuses a model that gives two outputs for one example",
    ),
    Named(
        "shortcuts/fading.py",
        "        changes.undo()\n        raise\n",
        "        raise\n",
        "a model that fade refuses is restored",
    ),
)

_STORAGE = (
    Named(
        "storage/lock.py",
        "if not os.path.samestat(os.fstat(descriptor), path.stat()):",
        "if False:",
        "a cache that was replaced between opening and locking is not believed",
    ),
    Named(
        "storage/lock.py",
        'raise FileNotFoundError(f"{path} is being removed") from None',
        "return",
        "a cache that is being removed is not used",
    ),
    Named(
        "storage/lock.py",
        "    os.register_at_fork(after_in_child=_drop_in_child)",
        "    pass",
        "a forked child does not keep its parent's lock",
    ),
    Named("storage/atomic.py", " | os.O_EXCL", "", "a link planted under the temporary name is not followed"),
    Named(
        "storage/atomic.py",
        "        file.flush()\n        os.fsync(file.fileno())\n",
        "        file.flush()\n",
        "a file is on the disk before it is renamed",
    ),
    Named(
        "storage/atomic.py",
        'or _is_another_living_process(match["pid"]):',
        "or False:",
        "what a living process is writing is not cleared",
    ),
)

_RUNS = (
    Named(
        "runs/open.py",
        'return averaged or dict(tensors.get("model", {})), bool(averaged)',
        'return dict(tensors.get("model", {})), bool(averaged)',
        "samples and features use the averaged weights of a checkpoint",
    ),
    Named(
        "runs/open.py",
        "repr(self.model.shortcut_record), repr((self.mean, self.std))]",
        "repr(self.model.shortcut_record)]",
        "an encoder is named by mean and std",
    ),
    Named(
        "runs/open.py",
        "words = [repr(self.config), repr(self.model.shortcut_record), ",
        "words = [repr(self.config), ",
        "an encoder is named by its alphas",
    ),
)

_TRAINING = (
    Named(
        "training/state.py",
        "trainee.model if trainee.ema is None else trainee.ema.module",
        "trainee.model",
        "the encoder of a run has the averaged weights",
    ),
    Named("training/validation.py", "        model.eval()\n", "", "a classifier is judged in evaluation mode"),
    Named(
        "training/validation.py", "        model.train()\n", "", "training goes on in training mode after a judgement"
    ),
    Named(
        "training/loop.py",
        "        session.run.drop_snapshots_after(checkpoint.step)\n",
        "",
        "snapshots of abandoned steps are removed on resume",
    ),
    Named(
        "training/loop.py",
        "        session.run.truncate_metrics(checkpoint.step)\n",
        "",
        "metrics of abandoned steps are removed on resume",
    ),
    Named(
        "training/loop.py",
        "            session.run.set_results_aside(checkpoint.step)\n",
        "",
        "results of abandoned weights are set aside on resume",
    ),
    Named(
        "training/loop.py",
        "            session.run.drop_encoder()\n",
        "",
        "the encoder of abandoned steps is removed on resume",
    ),
    Named(
        "training/step.py",
        "weight=float(present is batch)",
        "weight=1.0",
        "the stand-in of a process without samples weighs nothing",
    ),
    Named(
        "training/step.py",
        "weight * len(piece) * team.world / config.batch_size",
        "weight * len(piece) / config.batch_size",
        "gradients of several processes are those of one",
    ),
    Named(
        "training/step.py",
        "weight * len(piece) * team.world / config.batch_size",
        "weight * team.world / len(pieces)",
        "every sample weighs the same, however the batch was cut",
    ),
    Named(
        "runtime/distributed.py",
        "            value /= self.world\n",
        "",
        "the loss of several processes is the mean of theirs",
    ),
    Named(
        "runtime/distributed.py",
        "dist.all_reduce(tensor, op=dist.ReduceOp.MAX)",
        "pass",
        "one process that fails or is asked to stop stops all",
    ),
)

_SWEEPS = (
    Named(
        "sweeps/trials.py",
        "entries[: equal.index(False)] if False in equal else entries[: len(equal)]",
        "entries",
        "a command counts as done only while everything before it is the same",
    ),
    Named(
        "sweeps/trials.py",
        "        ledger.begin(words)\n",
        "",
        "a run that was started with other settings is not continued",
    ),
    Named(
        "sweeps/trials.py",
        "return finished and (trial.may_diverge or ",
        "return finished or (trial.may_diverge or ",
        "a trial is done when all of its commands are",
    ),
    Named(
        "sweeps/trials.py",
        "if begun and begun[0] != trial.commands[0]:",
        "if False:",
        "a sweep with other settings is refused",
    ),
    Named(
        "sweeps/trials.py",
        "        if code != 0:\n",
        "        if False:\n",
        "a command that failed is not recorded as finished",
    ),
    Named(
        "sweeps/tabulate.py",
        "if any(key in metric.protocol for key in unasked):",
        "if False:",
        "numbers of a step or a scan stay out of tables that do not ask for them",
    ),
    Named(
        "sweeps/tabulate.py",
        'return max(values) if quantity.best == "max" else min(values)',
        "return max(values)",
        "the best of several values is the best by the quantity's own measure",
    ),
    Named(
        "sweeps/tabulate.py",
        "[value - theirs[seed] for seed, value in ours.items() if seed in theirs]",
        "[value - other for value, other in zip(ours.values(), theirs.values())]",
        "differences are paired by seed",
    ),
)

_EXCHANGE = (
    Named(
        "exchange/import_pth.py",
        "_check_pickle(_check_archive(file, size, path), path)",
        "_check_archive(file, size, path)",
        "the pickle of a checkpoint is read before any of it is run",
    ),
    Named(
        "exchange/import_pth.py",
        "if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:",
        "if False:",
        "a compressed member is refused",
    ),
    Named(
        "exchange/import_pth.py",
        "weights_only=True",
        "weights_only=False",
        "torch.load runs nothing that a file names",
    ),
    Named(
        "exchange/import_pth.py",
        "if TorchVersion(torch.__version__) < SAFE_TORCH:",
        "if False:",
        "a torch with known holes reads no checkpoint",
    ),
    Named(
        "exchange/import_pth.py",
        "> 2 * size:",
        "> 2000 * size:",
        "ten names for one storage do not fill the memory",
    ),
    Named(
        "exchange/import_pth.py",
        "if not _MEMBER.fullmatch(member.filename):",
        "if False:",
        "an archive with other members than torch.save writes is refused",
    ),
    Named("reports/server.py", '    "X-Content-Type-Options": "nosniff",\n', "", "a browser does not guess the type"),
    Named("reports/server.py", '    "X-Frame-Options": "DENY",\n', "", "no other page frames the report"),
    Named(
        "reports/server.py",
        'if self.headers.get("Host") not in',
        'if self.headers.get("Host") in (None,) and None not in',
        "requests for another host are refused",
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


def named_mutants(sources: dict[str, bytes]) -> list[Mutant]:
    stale = [
        f"{each.file}: {each.old.strip()!r}"
        for each in NAMED
        if sources.get(each.file, b"").count(each.old.encode()) != 1
    ]
    if stale:
        raise SystemExit("named.py: not in its file exactly once any more:\n  " + "\n  ".join(stale))
    found = []
    for each in NAMED:
        source = sources[each.file]
        start = source.index(each.old.encode())
        end = start + len(each.old.encode())
        found.append(make_mutant(each.file, source, start, end, each.new, "named", each.promise))
    return found
