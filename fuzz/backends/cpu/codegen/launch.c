
static const struct { int slot, size; } pointers[] = {@POINTERS@};

/* Programs one after another, until `end` of the launch's have run, or one of them ends the launch. */
static void run_programs(Launch *all, i64 end) {
    const Slot *packed = all->packed;
    char *arena = @ARENA@ ? malloc(@ARENA@) : NULL;
    if (@ARENA@ && !arena) { end_without_memory(all); return; }
    Run run;
    run.all = all, run.nx = packed[0].i, run.ny = packed[1].i, run.nz = packed[2].i;
    run.shuffle = packed[5].i;
    if (!_setjmp(run.stop)) {
        for (; all->next < end && all->next < all->programs; all->next++) {
            const i64 p = all->order ? all->order[all->next] : all->next;
            run.program = p, run.x = p % run.nx, run.y = p / run.nx % run.ny, run.z = p / run.nx / run.ny;
            run.tag = @SYNCHRONISES@ ? 0 : (u32)p + 1, run.stale = @SYNCHRONISES@;
            run.acquired = run.exempt = run.quiet = 0;
            program(@PASSED@);
        }
    } else {
        all->next = all->programs;
    }
    free(arena);
}

/* Tags for the elements of all arguments; arguments that overlap share theirs. NULL where memory is short. */
static char *tags(Launch *all, i64 *bytes) {
    i64 start[@COUNT@ + 1], end[@COUNT@ + 1], offset[@COUNT@ + 1], total = 0;
    for (int n = 0; n < @COUNT@; n++) {
        start[n] = all->packed[pointers[n].slot].i, end[n] = start[n] + all->packed[pointers[n].slot + 1].i;
    }
    for (int again = 1; again;) {
        again = 0;
        for (int n = 0; n < @COUNT@; n++) {
            for (int m = 0; m < n; m++) {
                const int differs = start[n] != start[m] || end[n] != end[m];
                const int same = pointers[n].size == pointers[m].size && (start[n] - start[m]) % pointers[n].size == 0;
                if (!same || !differs || start[n] >= end[m] || start[m] >= end[n]) continue;
                start[n] = start[m] = start[n] < start[m] ? start[n] : start[m];
                end[n] = end[m] = end[n] > end[m] ? end[n] : end[m];
                again = 1;
            }
        }
    }
    for (int n = 0; n < @COUNT@; n++) {
        int first = 0;
        while (start[first] != start[n] || end[first] != end[n] || pointers[first].size != pointers[n].size) first++;
        offset[n] = first < n ? offset[first] : total;
        if (first == n) total += ((end[n] - start[n]) / pointers[n].size * 4 + 64) / 64 * 64;
    }
    char *found = zeroed(*bytes = total * (1 + @RACED@) + 64);
    for (int n = 0; found && n < @COUNT@; n++) {
        const int size = pointers[n].size;
        all->owner[n] = (i64)found + offset[n] - (size == 8 ? start[n] >> 1 : start[n] * (4 / size));
        all->reader[n] = all->owner[n] + total;
    }
    return found;
}

/* A launch, and the memory that it needs. */
typedef struct { Launch all; i64 owner[@COUNT@ + 1], reader[@COUNT@ + 1], bytes; char *tags; } Memory;

static void set_up(Memory *of, const Slot *packed) {
    Launch *all = &of->all;
    memset(of, 0, sizeof *of);
    all->packed = packed, all->order = (const i64 *)packed[3].i, all->limit = packed[4].i;
    all->programs = packed[0].i * packed[1].i * packed[2].i;
    all->owner = of->owner, all->reader = of->reader, all->counters = (u8 *)packed[6].i;
    if (@CONTESTED@ && all->programs) of->tags = tags(all, &of->bytes);
    if (@SYNCHRONISES@) all->stretch = zeroed(sizeof(Stretch) * (i64)STRETCHES);
    if ((@CONTESTED@ && all->programs && !of->tags) || (@SYNCHRONISES@ && !all->stretch)) end_without_memory(all);
}
static void *tear_down(Memory *of) {
    unmap(of->tags, of->bytes);
    unmap(of->all.stretch, sizeof(Stretch) * (i64)STRETCHES);
    return of->all.report;
}

/* Returns NULL, or a report that the caller frees; a report of SHORT violations says that memory was. */
__attribute__((visibility("default"))) void *launch(const Slot *packed) {
    Memory memory;
    set_up(&memory, packed);
    run_programs(&memory.all, memory.all.programs);
    return tear_down(&memory);
}

/* The same in parts, each of which the code of another tier may run; NULL where memory is short, and what `launch`
   returns. */
__attribute__((visibility("default"))) void *launch_begin(const Slot *packed) {
    Memory *memory = malloc(sizeof *memory);
    if (memory) set_up(memory, packed);
    return memory;
}
__attribute__((visibility("default"))) void launch_until(Memory *memory, i64 end) {
    run_programs(&memory->all, end);
}
__attribute__((visibility("default"))) void *launch_end(Memory *memory) {
    void *report = tear_down(memory);
    free(memory);
    return report;
}
__attribute__((visibility("default"))) void release(Report *report) {
    if (report && report->count != SHORT) free(report);
}

/* Launches `count` times, with a row of packed arguments each; marks those that would have had a report. */
__attribute__((visibility("default"))) void launch_many(const Slot *packed, i64 slots, i64 count, u8 *reported) {
    for (i64 n = 0; n < count; n++) {
        void *report = launch(packed + n * slots);
        reported[n] |= report != NULL;
        release(report);
    }
}
