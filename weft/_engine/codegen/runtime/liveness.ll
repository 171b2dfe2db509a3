; Answers to liveness probes: a connection that is accepted and closed at once proves that the process runs.
;
;   i32 weft_answer_probes(i32 listener, ptr stop)      accept and close connections until the word at `stop` is not 0
;
; The function runs without the GIL, so that a process also answers during a long host callback.

declare i32 @accept(i32, ptr, ptr)
declare i32 @close(i32)
declare i32 @usleep(i32)

define i32 @weft_answer_probes(i32 %listener, ptr %stop) {
entry:
  br label %next
next:
  %connection = call i32 @accept(i32 %listener, ptr null, ptr null)
  %stopped = load atomic i64, ptr %stop monotonic, align 8
  %failed = icmp slt i32 %connection, 0
  br i1 %failed, label %check, label %answer
answer:
  %closed = call i32 @close(i32 %connection)
  br label %check
check:
  %ends = icmp ne i64 %stopped, 0
  br i1 %ends, label %end, label %continue
continue:
  br i1 %failed, label %pause, label %next
pause:
  %slept = call i32 @usleep(i32 10000)
  br label %next
end:
  ret i32 0
}
