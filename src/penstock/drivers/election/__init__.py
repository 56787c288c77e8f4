"""Elections: which of several drivers of one job runs it, while the others stand by until it is gone (E7).

An election only says who begins. What keeps two drivers apart that both believe that they lead is the fence in the
store (`storage.leadership`).
"""
