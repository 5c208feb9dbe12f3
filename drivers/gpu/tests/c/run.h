// Runs the kernel for every work item; spans start at their buffers.

#define SOURCE_VALUE(i) , sources[i], 0
#define DEST_VALUE(i) , dests[i], 0

void run(const Params *params, const uchar *const *sources, uchar *const *dests, uint items) {
    for (work_item = 0; work_item < items; work_item++) {
        fold(*params EACH_SOURCE(SOURCE_VALUE) EACH_DEST(DEST_VALUE));
    }
}
