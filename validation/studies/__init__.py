"""Studies of the whole corpus that no verb needs: the scripts beside this folder and their tests import them."""
