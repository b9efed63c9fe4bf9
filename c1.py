import sys; sys.path.insert(0,"/tmp/rd1")
import simc, dataclasses, signal, traceback, time
p=simc.plan(0); p.chaos_s=9.0
W=[]
class C(simc.Compacted):
    def __init__(s,*a): super().__init__(*a); W.append(s)
def h(*a):
    w=W[0]; print("now",w.scheduler.now,"events",w.scheduler.events,w.told.counts, w.is_healing); print("\n".join(w.log[-6:])); print(w._not_whole()); import os; sys.stdout.flush(); os._exit(1)
signal.signal(signal.SIGALRM,h); signal.alarm(50)
o=simc.run(0,plan=p,kind=C); print(o.violation,o.events,o.administered)
