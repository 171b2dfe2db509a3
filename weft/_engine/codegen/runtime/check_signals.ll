; Let Python handle signals. Return 0, or nonzero if a handler raised; the error is kept. The thread that runs queued
; programs handles no signals and so needs no GIL; it returns nonzero if its program is to stop.
@weft_signal_error = external global [3 x ptr]
@weft_runner = external global [2 x i64]
declare i64 @pthread_self()
define internal i32 @weft_check_signals() noinline {
entry:
  %runner = load atomic i64, ptr @weft_runner monotonic, align 8
  %me = call i64 @pthread_self()
  %runs_queue = icmp eq i64 %runner, %me
  br i1 %runs_queue, label %queue, label %python
queue:
  %word = load atomic i64, ptr getelementptr (i64, ptr @weft_runner, i64 1) monotonic, align 8
  %stop = icmp ne i64 %word, 0
  %answer = zext i1 %stop to i32
  ret i32 %answer
python:
  %lock = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %quiet = icmp eq i32 %status, 0
  br i1 %quiet, label %done, label %raised
raised:
  %value = getelementptr ptr, ptr @weft_signal_error, i64 1
  %traceback = getelementptr ptr, ptr @weft_signal_error, i64 2
  call void @PyErr_Fetch(ptr @weft_signal_error, ptr %value, ptr %traceback)
  br label %done
done:
  call void @PyGILState_Release(i32 %lock)
  ret i32 %status
}
