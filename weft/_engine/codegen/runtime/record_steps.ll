; Records of the steps of a profiled program. The words of the memory at %events (`codegen.program.step_records`):
;
;   0                  number of records requested, those that did not fit included
;   1                  number of records that fit
;   2                  number of steps
;   8 + 2 s, 9 + 2 s   runs of step s, and their nanoseconds
;   8 + 2 steps ...    records of 5 words: step, thread of the pool, tasks (0: the step as a whole), begin, end
;
; The threads that run a matmul have a slot with their records and step, by which the matmul's own calls of the pool find them. A
; slot that another thread holds stays with it: such a call runs without records.
;
; Times are nanoseconds of CLOCK_MONOTONIC. Tasks read the counter of the CPU instead, which is faster than the clock; both are read
; before and after all tasks, so the counter is converted within these times.
;
; recorder.py fills in the placeholders in braces.
; Steps run one after another, on the thread of the call. The tasks of a step are
; counted for each thread of the pool, in 3 words of its own: number of tasks, begin of the first, end of the last.
@slots = internal global [256 x [3 x i64]] zeroinitializer, align 64 ; thread, records, step
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()
define i64 @weft_now() {
entry:
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %s = load i64, ptr %time, align 8
  %fraction = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %fraction, align 8
  %whole = mul i64 %s, 1000000000
  %now = add i64 %whole, %ns
  ret i64 %now
}
${declare_ticks}
define internal i64 @ticks() {
entry:
  %ticks = ${ticks}
  ret i64 %ticks
}
; nanoseconds after the beginning: `ticks` of `all` ticks in `ns`, from 0 to `ns`
define internal i64 @ticks_to_ns(i64 %ticks, i64 %all, i64 %ns) {
entry:
  %is_early = icmp slt i64 %ticks, 0
  %at_least = select i1 %is_early, i64 0, i64 %ticks
  %is_late = icmp sgt i64 %at_least, %all
  %at_most = select i1 %is_late, i64 %all, i64 %at_least
  %none = icmp slt i64 %all, 1
  %whole = select i1 %none, i64 1, i64 %all
  %a = sitofp i64 %at_most to double
  %b = sitofp i64 %whole to double
  %c = sitofp i64 %ns to double
  %share = fdiv double %a, %b
  %part = fmul double %share, %c
  %result = fptosi double %part to i64
  ret i64 %result
}
define internal void @weft_write_record(ptr %events, i64 %step, i64 %thread, i64 %tasks, i64 %begin, i64 %end) {
entry:
  %at = load i64, ptr %events, align 8
  %next = add i64 %at, 1
  store i64 %next, ptr %events, align 8
  %limit = getelementptr i64, ptr %events, i64 1
  %room = load i64, ptr %limit, align 8
  %fits = icmp ult i64 %at, %room
  br i1 %fits, label %write, label %done
write:
  %count = getelementptr i64, ptr %events, i64 2
  %steps = load i64, ptr %count, align 8
  %twice = shl i64 %steps, 1
  %first = add i64 %twice, 8
  %offset = mul i64 %at, 5
  %word = add i64 %first, %offset
  %w0 = getelementptr i64, ptr %events, i64 %word
  %w1 = getelementptr i64, ptr %w0, i64 1
  %w2 = getelementptr i64, ptr %w0, i64 2
  %w3 = getelementptr i64, ptr %w0, i64 3
  %w4 = getelementptr i64, ptr %w0, i64 4
  store i64 %step, ptr %w0, align 8
  store i64 %thread, ptr %w1, align 8
  store i64 %tasks, ptr %w2, align 8
  store i64 %begin, ptr %w3, align 8
  store i64 %end, ptr %w4, align 8
  br label %done
done:
  ret void
}
define void @weft_record(ptr %events, i64 %step, i64 %begin) {
entry:
  %end = call i64 @weft_now()
  %twice = shl i64 %step, 1
  %word = add i64 %twice, 8
  %runs_at = getelementptr i64, ptr %events, i64 %word
  %ns_at = getelementptr i64, ptr %runs_at, i64 1
  %runs = load i64, ptr %runs_at, align 8
  %more = add i64 %runs, 1
  store i64 %more, ptr %runs_at, align 8
  %ns = load i64, ptr %ns_at, align 8
  %taken = sub i64 %end, %begin
  %sum = add i64 %ns, %taken
  store i64 %sum, ptr %ns_at, align 8
  call void @weft_write_record(ptr %events, i64 %step, i64 0, i64 0, i64 %begin, i64 %end)
  ret void
}
define internal void @weft_recorded_task(ptr %job, i64 %task, i64 %thread) {
entry:
  %fn = load ptr, ptr %job, align 8
  %ctx_at = getelementptr i64, ptr %job, i64 1
  %ctx = load ptr, ptr %ctx_at, align 8
  %three = mul i64 %thread, 3
  %word = add i64 %three, 2
  %count_at = getelementptr i64, ptr %job, i64 %word
  %count = load i64, ptr %count_at, align 8
  %is_first = icmp eq i64 %count, 0
  br i1 %is_first, label %first, label %run
first:
  %begin = call i64 @ticks()
  %begin_at = getelementptr i64, ptr %count_at, i64 1
  store i64 %begin, ptr %begin_at, align 8
  br label %run
run:
  call void %fn(ptr %ctx, i64 %task, i64 %thread)
  %end = call i64 @ticks()
  %end_at = getelementptr i64, ptr %count_at, i64 2
  store i64 %end, ptr %end_at, align 8
  %more = add i64 %count, 1
  store i64 %more, ptr %count_at, align 8
  ret void
}
declare void @weft_parallel_for(ptr, ptr, i64)
define void @weft_recorded_parallel_for(ptr %fn, ptr %ctx, i64 %n, ptr %events, i64 %step, i64 %threads) {
entry:
  %three = mul i64 %threads, 3
  %words = add i64 %three, 2
  %job = alloca i64, i64 %words, align 8
  store ptr %fn, ptr %job, align 8
  %ctx_at = getelementptr i64, ptr %job, i64 1
  store ptr %ctx, ptr %ctx_at, align 8
  br label %clear
clear:
  %i = phi i64 [ 0, %entry ], [ %i1, %clear ]
  %three_i = mul i64 %i, 3
  %word = add i64 %three_i, 2
  %count_at = getelementptr i64, ptr %job, i64 %word
  store i64 0, ptr %count_at, align 8
  %i1 = add i64 %i, 1
  %left = icmp ult i64 %i1, %threads
  br i1 %left, label %clear, label %run
run:
  %time0 = call i64 @weft_now()
  %ticks0 = call i64 @ticks()
  call void @weft_parallel_for(ptr @weft_recorded_task, ptr %job, i64 %n)
  %ticks1 = call i64 @ticks()
  %time1 = call i64 @weft_now()
  %ns = sub i64 %time1, %time0
  %ticks = sub i64 %ticks1, %ticks0
  br label %look
look:
  %t = phi i64 [ 0, %run ], [ %t1, %next ]
  %three_t = mul i64 %t, 3
  %word_t = add i64 %three_t, 2
  %tasks_at = getelementptr i64, ptr %job, i64 %word_t
  %tasks = load i64, ptr %tasks_at, align 8
  %none = icmp eq i64 %tasks, 0
  br i1 %none, label %next, label %write
write:
  %begin_at = getelementptr i64, ptr %tasks_at, i64 1
  %begin_ticks = load i64, ptr %begin_at, align 8
  %end_at = getelementptr i64, ptr %tasks_at, i64 2
  %end_ticks = load i64, ptr %end_at, align 8
  %begin_after = sub i64 %begin_ticks, %ticks0
  %end_after = sub i64 %end_ticks, %ticks0
  %begin_ns = call i64 @ticks_to_ns(i64 %begin_after, i64 %ticks, i64 %ns)
  %end_ns = call i64 @ticks_to_ns(i64 %end_after, i64 %ticks, i64 %ns)
  %begin = add i64 %time0, %begin_ns
  %end = add i64 %time0, %end_ns
  call void @weft_write_record(ptr %events, i64 %step, i64 %t, i64 %tasks, i64 %begin, i64 %end)
  br label %next
next:
  %t1 = add i64 %t, 1
  %again = icmp ult i64 %t1, %threads
  br i1 %again, label %look, label %done
done:
  ret void
}
define internal ptr @slot_of(i64 %thread) {
entry:
  %page = lshr i64 %thread, 12
  %high = lshr i64 %thread, 21
  %mixed = xor i64 %page, %high
  %place = and i64 %mixed, 255
  %slot = getelementptr [256 x [3 x i64]], ptr @slots, i64 0, i64 %place
  ret ptr %slot
}
define void @weft_recording_enter(ptr %events, i64 %step) {
entry:
  %thread = call i64 @pthread_self()
  %slot = call ptr @slot_of(i64 %thread)
  %swap = cmpxchg ptr %slot, i64 0, i64 %thread acquire monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %fill, label %done
fill:
  %events_at = getelementptr i64, ptr %slot, i64 1
  %step_at = getelementptr i64, ptr %slot, i64 2
  store ptr %events, ptr %events_at, align 8
  store i64 %step, ptr %step_at, align 8
  br label %done
done:
  ret void
}
define void @weft_recording_leave() {
entry:
  %thread = call i64 @pthread_self()
  %slot = call ptr @slot_of(i64 %thread)
  %swap = cmpxchg ptr %slot, i64 %thread, i64 0 release monotonic
  ret void
}
define void @weft_recording_parallel_for(ptr %fn, ptr %ctx, i64 %n) {
entry:
  %thread = call i64 @pthread_self()
  %slot = call ptr @slot_of(i64 %thread)
  %holder = load atomic i64, ptr %slot acquire, align 8
  %mine = icmp eq i64 %holder, %thread
  br i1 %mine, label %record, label %plain
record:
  %events_at = getelementptr i64, ptr %slot, i64 1
  %step_at = getelementptr i64, ptr %slot, i64 2
  %events = load ptr, ptr %events_at, align 8
  %step = load i64, ptr %step_at, align 8
  call void @weft_recorded_parallel_for(ptr %fn, ptr %ctx, i64 %n, ptr %events, i64 %step, i64 ${threads})
  ret void
plain:
  call void @weft_parallel_for(ptr %fn, ptr %ctx, i64 %n)
  ret void
}
