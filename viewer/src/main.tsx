import {render} from 'preact';

import {App} from './page/app';
import './style.css';

render(<App />, document.getElementById('app')!);
