; Copies of strided blocks: runs of bytes that are apart in the source become adjacent in the target.
;
;   void weft_copy_runs(ptr words, i64 task, i64 worker)
;
; `words`: target, source, bytes of a run, number of runs, runs per task, chunks per run, bytes of a chunk, number of dims;
; then, for each dim (outermost first), its extent and its stride in bytes. A task copies one chunk of each of its runs.

declare ptr @memcpy(ptr, ptr, i64)

define void @weft_copy_runs(ptr %words, i64 %task, i64 %worker) nounwind {
entry:
  %target = load ptr, ptr %words
  %source_at = getelementptr i64, ptr %words, i64 1
  %source = load ptr, ptr %source_at
  %run_at = getelementptr i64, ptr %words, i64 2
  %run = load i64, ptr %run_at
  %runs_at = getelementptr i64, ptr %words, i64 3
  %runs = load i64, ptr %runs_at
  %share_at = getelementptr i64, ptr %words, i64 4
  %share = load i64, ptr %share_at
  %chunks_at = getelementptr i64, ptr %words, i64 5
  %chunks = load i64, ptr %chunks_at
  %chunk_at = getelementptr i64, ptr %words, i64 6
  %chunk = load i64, ptr %chunk_at
  %ndim_at = getelementptr i64, ptr %words, i64 7
  %ndim = load i64, ptr %ndim_at
  %dims = getelementptr i64, ptr %words, i64 8
  %part = udiv i64 %task, %chunks
  %which = urem i64 %task, %chunks
  %begin = mul i64 %which, %chunk
  %left = sub i64 %run, %begin
  %short = icmp ult i64 %left, %chunk
  %count = select i1 %short, i64 %left, i64 %chunk
  %first = mul i64 %part, %share
  %beyond = add i64 %first, %share
  %over = icmp ult i64 %runs, %beyond
  %last = select i1 %over, i64 %runs, i64 %beyond
  %some = icmp ult i64 %first, %last
  br i1 %some, label %one, label %done

one:
  %r = phi i64 [ %first, %entry ], [ %next, %copy ]
  %flat = icmp eq i64 %ndim, 0
  br i1 %flat, label %copy, label %place

place:                                             ; from the index of the run, innermost dim first
  %d = phi i64 [ %ndim, %one ], [ %inner, %place ]
  %rest = phi i64 [ %r, %one ], [ %outer, %place ]
  %offset = phi i64 [ 0, %one ], [ %moved, %place ]
  %inner = sub i64 %d, 1
  %dim = getelementptr [2 x i64], ptr %dims, i64 %inner
  %extent = load i64, ptr %dim
  %stride_at = getelementptr i64, ptr %dim, i64 1
  %stride = load i64, ptr %stride_at
  %outer = udiv i64 %rest, %extent
  %index = urem i64 %rest, %extent
  %step = mul i64 %index, %stride
  %moved = add i64 %offset, %step
  %more = icmp ugt i64 %inner, 0
  br i1 %more, label %place, label %copy

copy:
  %at = phi i64 [ 0, %one ], [ %moved, %place ]
  %from = add i64 %at, %begin
  %before = mul i64 %r, %run
  %to = add i64 %before, %begin
  %to_ptr = getelementptr i8, ptr %target, i64 %to
  %from_ptr = getelementptr i8, ptr %source, i64 %from
  %same = call ptr @memcpy(ptr %to_ptr, ptr %from_ptr, i64 %count)
  %next = add i64 %r, 1
  %again = icmp ult i64 %next, %last
  br i1 %again, label %one, label %done

done:
  ret void
}
