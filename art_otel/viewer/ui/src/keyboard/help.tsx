import { useEffect, useRef, useState } from "preact/hooks";
import { keysOn, switchKeys } from "./keys";

export const KEYS: [string[], string][] = [
  [["j", "k"], "next and previous row, or rollout of the list"],
  [["Enter"], "open the chosen row"],
  [["[", "]"], "previous and next member of the group"],
  [["J", "K"], "next and previous of what went wrong in a rollout"],
  [["End"], "the end of a rollout"],
  [["n", "p"], "next and previous trained completion"],
  [["c"], "text, or its tokens by mask, logprob, advantage"],
  [["/"], "search"],
  [["?"], "this help"],
];

export function Help({ open, onClose }: { open: boolean; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [on, setOn] = useState(keysOn());
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} class="help" onClose={onClose} aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <table>
        <tbody>
          {KEYS.map(([keys, does]) => (
            <tr>
              <td>
                <kbd>{keys[0]}</kbd>
                {keys[1] && (
                  <>
                    {" "}
                    <kbd>{keys[1]}</kbd>
                  </>
                )}
              </td>
              <td>{does}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        Among tokens, the arrow keys move from one to the next, and the panel says why each is trained or not.
      </p>
      <label class="check">
        <input
          type="checkbox"
          checked={on}
          onChange={(event) => {
            switchKeys(event.currentTarget.checked);
            setOn(event.currentTarget.checked);
          }}
        />
        Single keys are on
      </label>
      <button onClick={() => dialog.current?.close()}>Close</button>
    </dialog>
  );
}
