; Lets Python handle signals: 0, or nonzero if a handler raised, which is kept.
@weft_signal_error = external global [3 x ptr]
define internal i32 @weft_check_signals() noinline {
entry:
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
